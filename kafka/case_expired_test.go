package kafka_test

import (
	"testing"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// The group of a sink expires while all is acked. When the sink is back it has
// nothing to ack, and the watermark must come back all the same [C4].
func TestC4_TheWatermarkComesBackWithASinkWhoseGroupExpired(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		w.publish(s, w.commits(s), 1, 2)
		c := w.attach(s, "audit")
		w.applies(c, 1, 2)
		w.mark(s, 2)
		w.do("close", c.Close(w.ctx()))
		w.DropGroup(t, "audit")
		fresh := w.process("db:slot")
		w.mark(fresh, flusso.NoPosition)
		c = w.attach(s, "audit")
		w.nothing(c)
		w.do("flush", c.Flush(w.ctx()))
		w.sleep(time.Second)
		w.mark(fresh, 2)
		idle, err := fresh.Idle(w.ctx())
		if w.do("idle", err); !idle {
			t.Error("everything is acked and the stream is not idle")
		}
	})
}
