package view

import (
	"strconv"

	"tranche/ledger"
)

// Fixed addresses: the handlers' route list uses the same constants.
const (
	HomeURL       = "/"
	SignInURL     = "/sign-in"
	SignInDevURL  = "/sign-in/dev"  // POST person, next
	SignInOIDCURL = "/sign-in/oidc" // GET next
	SignOutURL    = "/sign-out"     // POST
	JoinURL       = "/join"         // GET, POST project, message
	TreeURL       = "/tree"
	RequestsURL   = "/requests" // GET, POST
	NewRequestURL = "/requests/new"
	JobsURL       = "/jobs" // GET, POST
	NewJobURL     = "/jobs/new"
	ArraysURL     = "/arrays"
	PoolsURL      = "/pools"
	NodesURL      = "/nodes"
	EnrolURL      = "/nodes/enrol" // POST pool, hours
	PeriodsURL    = "/admin/periods"
	AdminPoolsURL = "/admin/pools"
	PolicyURL     = "/policy"
	GroupsURL     = "/admin/groups"
	PeopleURL     = "/people"
	InviteURL     = "/people/invite" // POST email, group, role
	GrantURL      = "/people/grant"  // POST person, group, role, until
	RevokeURL     = "/people/revoke" // POST person, group, role
	TokensURL     = "/tokens"        // GET, POST
	ExportURL     = "/export"
	ChargesCSVURL = "/export/charges.csv" // GET from, to, group, pool
	AuditURL      = "/audit"
	VerifyURL     = "/verify" // GET, POST
)

// GroupURL is a program's page or a project's statement: the handler looks which.
// A group that the reader may not see has none.
func GroupURL(id ledger.GroupID) string {
	if id <= 0 {
		return ""
	}
	return "/groups/" + itoa(id)
}

// SplitURL takes the split of a program's pot (POST pool, mode, share_<group id>).
func SplitURL(id ledger.GroupID) string { return GroupURL(id) + "/split" }

// MembersURL lists the people of a group.
func MembersURL(id ledger.GroupID) string { return GroupURL(id) + "/people" }

// RequestURL is one request with its history.
func RequestURL(id ledger.RequestID) string { return RequestsURL + "/" + itoa(id) }

// ReviewURL is where a manager answers a request (GET, POST).
func ReviewURL(id ledger.RequestID) string { return RequestURL(id) + "/review" }

// WithdrawURL takes a request back (POST).
func WithdrawURL(id ledger.RequestID) string { return RequestURL(id) + "/withdraw" }

// JobURL is one job with its explanation; a job that the reader may not see has none.
func JobURL(id ledger.JobID) string {
	if id <= 0 {
		return ""
	}
	return JobsURL + "/" + itoa(id)
}

// JobVerbURL takes a verb on a job: cancel, pause, resume, stop (POST).
func JobVerbURL(id ledger.JobID, verb string) string { return JobURL(id) + "/" + verb }

// ArrayURL is one array with its jobs.
func ArrayURL(id ledger.ArrayID) string { return ArraysURL + "/" + itoa(id) }

// ArrayVerbURL takes a verb on all jobs of an array: cancel, pause, resume (POST).
func ArrayVerbURL(id ledger.ArrayID, verb string) string { return ArrayURL(id) + "/" + verb }

// JobLogURL is the whole log of a job's newest attempt, as text.
func JobLogURL(id ledger.JobID) string { return JobURL(id) + "/log" }

// JobChangesURL is what would start a waiting job.
func JobChangesURL(id ledger.JobID) string { return JobURL(id) + "/changes" }

// PoolOrderURL is a pool's whole queue with the numbers that sorted it.
func PoolOrderURL(id ledger.PoolID) string { return PoolURL(id) + "/order" }

// PoolURL is a pool's queue and standings.
func PoolURL(id ledger.PoolID) string { return PoolsURL + "/" + itoa(id) }

// PoolDemandURL is what a pool's jobs usually need per GPU; it takes a change (POST net_mbps, sto_mbps, io_milli).
func PoolDemandURL(id ledger.PoolID) string { return AdminPoolsURL + "/" + itoa(id) + "/demand" }

// NodeURL is one node with its devices.
func NodeURL(id ledger.NodeID) string { return NodesURL + "/" + itoa(id) }

// NodeVerbURL takes a verb on a node: drain (reason, hard), undrain (POST).
func NodeVerbURL(id ledger.NodeID, verb string) string { return NodeURL(id) + "/" + verb }

// JoinAnswerURL takes the answer to an ask to join (POST decision).
func JoinAnswerURL(id int64) string { return JoinURL + "/" + strconv.FormatInt(id, 10) }

// TokenRevokeURL ends an API token (POST).
func TokenRevokeURL(id int64) string { return TokensURL + "/" + strconv.FormatInt(id, 10) + "/revoke" }

func itoa[T ~int64](id T) string { return strconv.FormatInt(int64(id), 10) }
