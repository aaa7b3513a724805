package view

// define gives the glossary's sentence for a word, or "".
func define(word string) string { return glossary[word] }

// glossary holds the words pages use, each in one sentence. It never changes.
var glossary = map[string]string{
	"attempt":             "One run of a job.",
	"award":               "The GPU-hours a manager granted for a request.",
	"charge":              "Usage that left the project's budget.",
	"commitment":          "GPU-time that running jobs are still protected for. It counts against a group before it is used.",
	"credit":              "A correction in the project's favour, for example after a node was lost.",
	"cycle":               "One round of the dispatcher: it looks at everything that waits and decides what starts.",
	"deliverable":         "An estimate of what the queue can give before the lots expire, from share, capacity and time left.",
	"expired":             "Awarded, not used, and past its last day.",
	"funded":              "Charged to a budget and protected for its minimum runtime.",
	"member share":        "A member's portion inside a project: of two jobs of one urgency, the one of who had less per share goes first.",
	"grace":               "Time between the signal to stop and the kill, for saving work.",
	"charged without use": "GPU-hours that a funded attempt was charged while its GPUs were unused: below the policy's bound for as long as the policy says.",
	"headroom":            "GPU memory that is set aside beyond what is in use, for what the jobs on the device may still need.",
	"held":                "GPU-hours set aside for jobs that started, before they are used.",
	"lookback":            "The span of past usage that counts: 7 days.",
	"lot":                 "One award's GPU-hours in a project's ledger, with a first and a last day.",
	"overrun":             "Usage that exceeded every lot. It is recorded, never cut.",
	"pool":                "Nodes with the same GPU model that share one queue.",
	"pot":                 "A program's GPU-hours for the period, to split and to award.",
	"protected for":       "The shortest run that makes and saves progress. Until it is over, no other job may stop this one.",
	"protected until":     "Before this instant no other job may stop the attempt.",
	"rate":                "How many GPU-hours one hour on one GPU of this pool costs.",
	"running":             "Used by running jobs and not settled yet.",
	"settled":             "Usage that was charged for good.",
	"share":               "A group's fair portion among its siblings, from the GPU-hours it was awarded.",
	"spent":               "Used and settled.",
	"standing":            "(usage + commitment) ÷ share. 1.40 means the group has had 1.4 times its share. The lower number goes first.",
	"supply":              "What the pool can deliver in the period: devices × hours × planned availability.",
	"unfunded":            "Free of charge; any funded job may stop it at any time.",
	"urgency":             "0 to 9. Sorts jobs inside one project only.",
	"usable":              "What could be set aside right now: the least that is left in the project and in every program above it.",
	"usage":               "Funded GPU-time in the last 7 days.",
}
