package feeds_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/flusso/flusso-kafka/internal/embedded"
	"github.com/flusso/flusso-kafka/internal/feedtest"
)

var (
	killsSeed  = flag.Uint64("kills.seed", 1, "first seed of the model of processes")
	killsRuns  = flag.Int("kills.runs", 2, "how many seeds the model of processes runs")
	killsLives = flag.Int("kills.lives", 12, "processes of a run of the model of processes")
)

// TestModelOfProcesses runs random lives of processes that are killed. A seed
// that failed runs again by -kills.seed=N -kills.runs=1.
func TestModelOfProcesses(t *testing.T) {
	t.Parallel()
	addr := broker(t)
	for i := range *killsRuns {
		seed := *killsSeed + uint64(i)
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			feedtest.Model(t, seed, *killsLives, addr)
		})
	}
}

func broker(t *testing.T) string {
	t.Helper()
	b, err := embedded.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b.Addr()
}

func TestE17_KilledBetweenAnyTwoStepsOfASeal(t *testing.T) {
	t.Parallel()
	feedtest.KillAtSteps(t, broker(t))
}

func TestE14_ProcessesFightForTheLease(t *testing.T) {
	t.Parallel()
	t.Logf("%d records were acked", feedtest.Fight(t, 2, 2, broker(t)))
}

func TestE6_AKilledProcessLosesNothingThatWasAcked(t *testing.T) {
	t.Parallel()
	t.Logf("%d records were acked", feedtest.KillAnywhere(t, 6, broker(t)))
}
