package feeds_test

import (
	"testing"

	"github.com/flusso/flusso-kafka/internal/embedded"
	"github.com/flusso/flusso-kafka/internal/feedtest"
)

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

func TestE6_AKilledProcessLosesNothingThatWasAcked(t *testing.T) {
	t.Parallel()
	t.Logf("%d records were acked", feedtest.KillAnywhere(t, 6, broker(t)))
}
