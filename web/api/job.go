package api

import (
	"time"

	"tranche/ledger"
)

// Paths of the public API. {id} is a job number.
const (
	PathWhoAmI    = "/api/v1/whoami"
	PathBalances  = "/api/v1/balances"  // GET ?project=&pool=
	PathStatement = "/api/v1/statement" // GET ?project=&pool=&from=&to=&after=&limit=
	PathJobs      = "/api/v1/jobs"      // POST submit; GET ?project=&pool=&state=&mine=&array=&after=&limit=
	PathJob       = "/api/v1/jobs/{id}"
	PathWhy       = "/api/v1/jobs/{id}/why"
	PathJobLogs   = "/api/v1/jobs/{id}/logs"   // GET ?attempt=&rank=&offset=&wait_ms=
	PathCancel    = "/api/v1/jobs/{id}/cancel" // POST Command
	PathPause     = "/api/v1/jobs/{id}/pause"
	PathResume    = "/api/v1/jobs/{id}/resume"
	PathRenew     = "/api/v1/jobs/{id}/renew" // POST Renew

	PathArray       = "/api/v1/arrays/{id}" // {id} is an array's number
	PathArrayCancel = "/api/v1/arrays/{id}/cancel"
	PathArrayPause  = "/api/v1/arrays/{id}/pause"
	PathArrayResume = "/api/v1/arrays/{id}/resume"
)

// Presets of a submission.
const (
	PresetDebug = "debug" // protected 15 min
	PresetTrain = "train" // protected 1 h; the default
	PresetLong  = "long"  // protected 8 h
	PresetFree  = "free"  // unfunded
)

// What happens to an attempt when the money ends.
const (
	MoneyGoOn = "go_on" // continue unfunded; the default
	MoneyStop = "stop"
)

// Submit asks for a job. Pointers and empty strings mean "the preset's or the
// policy's default".
type Submit struct {
	// Key makes the submission safe to repeat: the same key with the same
	// content gives the first job again, with other content a 409.
	Key     string `json:"key"`
	Preset  string `json:"preset,omitempty"`
	Name    string `json:"name,omitempty"`
	Project string `json:"project"` // path, e.g. "/vision/detect"
	Pool    string `json:"pool"`

	Nodes    int64  `json:"nodes,omitempty"` // default 1
	GPUs     int64  `json:"gpus"`            // per node
	GPUMilli int64  `json:"gpu_milli,omitempty"`
	CPUMilli int64  `json:"cpu_milli,omitempty"` // per node; 0 = the proportional part
	RAMMiB   int64  `json:"ram_mib,omitempty"`   // per node; 0 = the proportional part
	HBMMiB   *int64 `json:"hbm_mib,omitempty"`   // of each GPU; for a part of one 0 = as large a part. Left out, these four are the pool's default
	NetMbps  *int64 `json:"net_mbps,omitempty"`  // per node, Mbit/s
	StoMbps  *int64 `json:"sto_mbps,omitempty"`  // per node, MB/s
	IOCMilli *int64 `json:"ioc_milli,omitempty"` // per node, thousandths of cores that move data

	Command    string            `json:"command"`
	WorkDir    string            `json:"workdir,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	OutputPath string            `json:"output_path,omitempty"`
	Checkpoint string            `json:"checkpoint,omitempty"` // "signal:USR1" or a shell command

	MinRuntimeMS  *int64   `json:"min_runtime_ms,omitempty"` // "Protected for"
	GraceMS       *int64   `json:"grace_ms,omitempty"`       // real ms, SIGTERM to SIGKILL
	MaxRuntimeMS  *int64   `json:"max_runtime_ms,omitempty"`
	Resumable     *bool    `json:"resumable,omitempty"`
	WhenMoneyEnds string   `json:"when_money_ends,omitempty"`
	Urgency       int      `json:"urgency,omitempty"` // 0..9
	OrFree        bool     `json:"or_free,omitempty"`
	Interactive   bool     `json:"interactive,omitempty"` // somebody sits at it: warned before its protection ends
	After         []string `json:"after,omitempty"`       // "ok:12" or "any:13:A4": start after these jobs and arrays
	Singleton     bool     `json:"singleton,omitempty"`   // one job of this name, owner and project at a time
	Array         string   `json:"array,omitempty"`       // "0-99%8": a job for each index, at most so many at once
	// MaxCharge is the most this job may ever cost; nil = no limit of its own.
	MaxCharge *ledger.Amount `json:"max_charge_units,omitempty"`
}

// Command is the body of cancel, pause and resume.
type Command struct {
	Key string `json:"key"`
}

// Job is one job as people see it. Private fields (command, environment,
// workdir, output path, checkpoint) are empty for readers without the role.
type Job struct {
	ID      ledger.JobID `json:"id"`
	Name    string       `json:"name,omitempty"`
	Project string       `json:"project"`
	Pool    string       `json:"pool"`
	User    string       `json:"user"`
	State   string       `json:"state"` // waiting, paused, starting, running, ending, finished, cancelled …
	// Result says how a job that is over ended: ok, failed, cancelled, lost, timeout.
	Result   string `json:"result,omitempty"`
	ExitCode *int   `json:"exit_code,omitempty"`
	Signal   int    `json:"signal,omitempty"`

	Nodes    int64 `json:"nodes"`
	GPUs     int64 `json:"gpus"`
	GPUMilli int64 `json:"gpu_milli,omitempty"`
	CPUMilli int64 `json:"cpu_milli"`
	RAMMiB   int64 `json:"ram_mib"`
	HBMMiB   int64 `json:"hbm_mib,omitempty"`
	NetMbps  int64 `json:"net_mbps,omitempty"`
	StoMbps  int64 `json:"sto_mbps,omitempty"`
	IOCMilli int64 `json:"ioc_milli,omitempty"`

	Command    string            `json:"command,omitempty"`
	WorkDir    string            `json:"workdir,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	OutputPath string            `json:"output_path,omitempty"`
	Checkpoint string            `json:"checkpoint,omitempty"`

	MinRuntimeMS  int64          `json:"min_runtime_ms"`
	GraceMS       int64          `json:"grace_ms"`
	MaxRuntimeMS  int64          `json:"max_runtime_ms"`
	Resumable     bool           `json:"resumable"`
	WhenMoneyEnds string         `json:"when_money_ends"`
	Urgency       int            `json:"urgency"`
	OrFree        bool           `json:"or_free"`
	Interactive   bool           `json:"interactive"`
	MaxCharge     *ledger.Amount `json:"max_charge_units,omitempty"`

	Submitted time.Time     `json:"submitted"`
	Ended     *time.Time    `json:"ended,omitempty"`
	Charged   ledger.Amount `json:"charged_units"`
	Held      ledger.Amount `json:"held_units"`
	Unused    ledger.Amount `json:"charged_without_use_units,omitempty"` // only in the single-job answer
	Attempts  []Attempt     `json:"attempts,omitempty"`                  // oldest first; only in the single-job answer
	Reason    string        `json:"reason,omitempty"`                    // one sentence: why it waits
	Renewal   *Renewal      `json:"renewal,omitempty"`                   // only in the single-job answer
	InArray   *InArray      `json:"in_array,omitempty"`                  // nil for a job by itself
	Array     *Array        `json:"array,omitempty"`                     // only in lists: this line stands for the whole array
}

// InArray says which job of which array one is.
type InArray struct {
	Array ledger.ArrayID `json:"array"`
	Index int32          `json:"index"`
	Size  int            `json:"size"` // jobs of the array
}

// Array is many jobs of one submission that differ by their index.
type Array struct {
	ID        ledger.ArrayID `json:"id"`
	Name      string         `json:"name,omitempty"`
	Project   string         `json:"project"`
	Pool      string         `json:"pool"`
	User      string         `json:"user"`
	Indices   string         `json:"indices"`           // as written: "0-99"
	AtOnce    int            `json:"at_once,omitempty"` // jobs that may go at once; 0 = all
	Size      int            `json:"size"`
	FirstJob  ledger.JobID   `json:"first_job"`
	After     string         `json:"after,omitempty"` // what all its jobs still wait for
	Submitted time.Time      `json:"submitted"`
	Waiting   int            `json:"waiting"`
	Paused    int            `json:"paused"`
	Running   int            `json:"running"` // starting and ending ones, too
	Finished  int            `json:"finished"`
	Failed    int            `json:"failed"`
	Cancelled int            `json:"cancelled"`
	Charged   ledger.Amount  `json:"charged_units"`
}

// Renew asks for new protection in place of a job that runs funded.
type Renew struct {
	Key   string `json:"key"`
	ForMS int64  `json:"for_ms,omitempty"` // 0 = its declared minimum runtime
}

// Renewal says what became of an ask for new protection, and whether the
// attempt was warned.
type Renewal struct {
	Pending bool   `json:"pending"` // the next cycle answers
	Granted bool   `json:"granted"`
	Answer  string `json:"answer,omitempty"`
	Warning string `json:"warning,omitempty"`
}

// Attempt is one run of a job.
type Attempt struct {
	ID             ledger.AttemptID `json:"id"`
	Number         int              `json:"number"` // 1-based within the job
	State          string           `json:"state"`
	Funded         bool             `json:"funded"`
	Nodes          []string         `json:"nodes"`
	Started        *time.Time       `json:"started,omitempty"`
	ProtectedUntil *time.Time       `json:"protected_until,omitempty"`
	Ended          *time.Time       `json:"ended,omitempty"`
	ElapsedMS      int64            `json:"elapsed_ms"`
	Charged        ledger.Amount    `json:"charged_units"`
	ExitCode       *int             `json:"exit_code,omitempty"`
	Signal         int              `json:"signal,omitempty"`
	Cause          string           `json:"cause,omitempty"`
	Detail         string           `json:"detail,omitempty"`
}

// JobList is one keyset page, newest first; of one array, by index. Next is the cursor of the next page
// ("" at the end); pass it as ?after=.
type JobList struct {
	Jobs []Job  `json:"jobs"`
	Next string `json:"next,omitempty"`
}

// Why explains where a job stands.
type Why struct {
	Job      ledger.JobID      `json:"job"`
	Code     string            `json:"code"`     // stable name of the Reason
	Sentence string            `json:"sentence"` // for people
	Lines    []WhyLine         `json:"lines"`    // the numbers that decided it, in reading order
	Facts    map[string]string `json:"facts,omitempty"`
	At       time.Time         `json:"at"` // instant of the cycle that decided, year 1 when none did
}

// WhyLine is one numbered fact of an explanation.
type WhyLine struct {
	Label  string `json:"label"`
	Value  string `json:"value"`
	Detail string `json:"detail,omitempty"`
}

// Logs is a piece of one attempt's output. End is true when the attempt is over
// and nothing follows NextOffset.
type Logs struct {
	Attempt    ledger.AttemptID `json:"attempt"`
	Rank       int              `json:"rank"`
	Offset     int64            `json:"offset"`
	NextOffset int64            `json:"next_offset"`
	Data       []byte           `json:"data"` // base64 in JSON
	End        bool             `json:"end"`
	// NextAttempt is the attempt that followed, 0 when there is none (yet).
	NextAttempt ledger.AttemptID `json:"next_attempt,omitempty"`
}
