// Package feeds_test holds what only Apache Kafka can show of feeds: processes
// that fight for the lease, and that are killed between the steps of a seal.
package feeds_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/internal/feedtest"
)

func TestMain(m *testing.M) {
	feedtest.Main()
	flag.Parse()
	// Most of a test is waiting for the broker.
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	containers.Main(m)
}

func TestE17_KilledBetweenAnyTwoStepsOfASeal(t *testing.T) {
	t.Parallel()
	feedtest.KillAtSteps(t, containers.Shared(t).Addr())
}

func TestE6_AKilledProcessLosesNothingThatWasAcked(t *testing.T) {
	t.Parallel()
	t.Logf("%d records were acked", feedtest.KillAnywhere(t, 5, containers.Shared(t).Addr()))
}

func TestE14_ProcessesFightForTheLease(t *testing.T) {
	for _, processes := range []int{2, 3} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			t.Parallel()
			t.Logf("%d records were acked", feedtest.Fight(t, processes, 3, containers.Shared(t).Addr()))
		})
	}
}

var (
	killsSeed  = flag.Uint64("kills.seed", 1, "first seed of the model of processes")
	killsRuns  = flag.Int("kills.runs", 2, "how many seeds the model of processes runs")
	killsLives = flag.Int("kills.lives", 12, "processes of a run of the model of processes")
)

// TestModelOfProcesses runs random lives of processes that are killed. A seed
// that failed runs again by -kills.seed=N -kills.runs=1.
func TestModelOfProcesses(t *testing.T) {
	for i := range *killsRuns {
		seed := *killsSeed + uint64(i)
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			feedtest.Model(t, seed, *killsLives, containers.Shared(t).Addr())
		})
	}
}
