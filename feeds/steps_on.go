//go:build synctests

package feeds

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// dieAt names the step at which a process of a test kills itself, and the how
// manieth time: the first, or as in "pack:3".
var (
	dieAt, dieTime = dying(os.Getenv("FLUSSO_FEEDS_TEST_DIE_AT"))
	passed         atomic.Int64
)

func dying(at string) (step string, times int64) {
	step, text, _ := strings.Cut(at, ":")
	times, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		times = 1
	}
	return step, times
}

// reached kills the process at the step that its test chose: nothing is
// deferred, flushed or closed.
func reached(step string) {
	if step != dieAt || passed.Add(1) != dieTime {
		return
	}
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
		select {}
	}
}
