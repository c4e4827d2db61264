package streamtest

import (
	"slices"
	"strings"
	"testing"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// DefaultWait bounds every wait of the suite.
const DefaultWait = 30 * time.Second

// Harness says how the suite gets at an adapter.
type Harness struct {
	// Name of the adapter, for messages.
	Name string

	// Run calls body with a test: plainly, or as [testing/synctest.Test] does,
	// one bubble for each subtest. nil means plainly.
	Run func(t *testing.T, body func(t *testing.T))

	// Open returns a fresh and empty pipeline with these sinks. What it
	// allocates it releases through t.Cleanup.
	Open func(t *testing.T, sinks []string) Pipeline

	// Excused maps a clause ("C6") or one subtest ("B7_a_stalled_sink…") to
	// the reason why the adapter does not claim it. A key that names neither
	// fails the suite, and so does a subtest that needs something optional
	// which the [Pipeline] lacks, unless it is excused.
	Excused map[string]string

	// Wait bounds every wait; 0 means [DefaultWait].
	Wait time.Duration
}

// Pipeline is one pipeline under test, seen from outside all processes. It may
// also implement [GroupMover], [Trimmer], [Recreator], [Stopper] and [Limited].
type Pipeline interface {
	// Stream opens the pipeline as another process does, with clients of its
	// own. The suite closes or crashes it.
	Stream(t *testing.T, incarnation string) flusso.Stream

	// Crash ends a stream's process: nothing is closed, drained, committed or
	// said good-bye to. The suite does not use the stream afterwards, but for
	// a Close that may fail.
	Crash(t *testing.T, s flusso.Stream)
}

// GroupMover moves a sink's committed offset as an outside tool does: without
// the adapter's metadata, while no consumer is attached [C6].
type GroupMover interface {
	// MoveGroup returns when the offset is committed. Whatever the adapter
	// keeps beside the group, to tell a rewind from a skip, is up to date
	// when it is called.
	MoveGroup(t *testing.T, sink string, to flusso.Offset)
	LaneEnder
}

// LaneEnder tells the offset behind a lane's newest item.
type LaneEnder interface {
	LaneEnd(t *testing.T, sink string) flusso.Offset
}

// Trimmer deletes items of a lane whether they are acked or not [B8].
type Trimmer interface {
	// Trim deletes everything below upTo.
	Trim(t *testing.T, sink string, upTo flusso.Offset)
	LaneEnder
}

// Recreator deletes a lane and creates it anew under the same name [B8, C3].
type Recreator interface {
	RecreateLane(t *testing.T, sink string)
}

// Stopper makes whatever stores the lanes unreachable [C7].
type Stopper interface {
	// Stop returns the function that makes it reachable again, with all it held.
	Stop(t *testing.T) (restart func())
}

// Limited has a limit on the size of an item [F2].
type Limited interface {
	// TooLarge returns a valid item that is above it.
	TooLarge(t *testing.T) flusso.LaneItem
}

// clause is one subtest.
type clause struct {
	name  string // clause, underscore, what it says
	check func(e *env)
}

func (c clause) id() string {
	id, _, _ := strings.Cut(c.name, "_")
	return id
}

func clauses() []clause {
	return slices.Concat(
		portClauses, orderClauses, takeoverClauses, ackClauses, gapClauses, replayClauses, commitClauses,
		floorClauses, watermarkClauses, requestClauses, closeClauses)
}

// Clauses returns the names of all subtests, in order.
func Clauses() []string {
	var out []string
	for _, c := range clauses() {
		out = append(out, c.name)
	}
	return out
}

// Run holds the adapter against every clause, one subtest each.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.Run == nil {
		h.Run = func(t *testing.T, body func(t *testing.T)) { body(t) }
	}
	if h.Wait == 0 {
		h.Wait = DefaultWait
	}
	var excused []string
	used := make(map[string]bool)
	for _, c := range clauses() {
		reason, key := h.Excused[c.name], c.name
		if reason == "" {
			reason, key = h.Excused[c.id()], c.id()
		}
		if reason == "" {
			t.Run(c.name, func(t *testing.T) {
				h.Run(t, func(t *testing.T) { c.check(&env{t: t, h: h}) })
			})
			continue
		}
		used[key] = true
		excused = append(excused, c.name+": "+reason)
		t.Run(c.name, func(t *testing.T) { t.Logf("%s is excused: %s", h.Name, reason) })
	}
	for key := range h.Excused {
		if !used[key] {
			t.Errorf("harness %s excuses %q, with the reason %q: there is no such clause left to excuse", h.Name, key, h.Excused[key])
		}
	}
	for _, line := range excused {
		t.Logf("%s does not claim %s", h.Name, line)
	}
}
