package feeds_test

import (
	"testing"

	"github.com/flusso/flusso-kafka/internal/embedded"
	"github.com/flusso/flusso-kafka/internal/feedtest"
)

// BenchmarkMemory appends 1 GiB in a process of its own, with the bucket down
// and with a flusher at work, and prints what that process holds [E11]. The
// broker is in this one.
func BenchmarkMemory(b *testing.B) {
	broker, err := embedded.Open(b.Context(), b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := broker.Close(); err != nil {
			b.Error(err)
		}
	}()
	feedtest.Memory(b, broker.Addr())
}
