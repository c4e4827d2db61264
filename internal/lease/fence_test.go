package lease_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/lease"
	"github.com/flusso/flusso-kafka/topics"
)

func TestFence_EndsWhoeverWrites(t *testing.T) {
	bubble(t, []string{"audit"}, func(t *testing.T, w *world) {
		writer, producer, epoch := w.begin(w.pipeline.WriterID(0), w.lanes...)
		fenced, err := lease.Fence(w.ctx(), w.cl, w.pipeline, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if len(fenced) != topics.WriterIDs {
			t.Fatalf("got %+v", fenced)
		}
		for i, f := range fenced {
			if !f.Done || f.Prior.Name != w.pipeline.WriterID(i) || f.ProducerID < 0 {
				t.Errorf("got %+v", f)
			}
			if prior := f.Prior; i == 0 {
				if prior.State != "Ongoing" || prior.ProducerID != producer || prior.ProducerEpoch != epoch || f.ProducerID == producer && f.ProducerEpoch <= epoch {
					t.Errorf("got %+v, want another epoch than %d", f, epoch)
				}
			} else if prior.State != lease.None {
				t.Errorf("got %+v", f)
			}
		}
		// What it had open is gone, and it can end nothing.
		if s := w.describe(); len(s.Open) != 0 || s.Err() != nil || s.IDs[0].ProducerEpoch != fenced[0].ProducerEpoch {
			t.Errorf("got %+v", s)
		}
		if err := kfaketest.EndTransaction(w.ctx(), writer, true, w.lanes[0].Topic()); err == nil {
			t.Error("the writer committed after it was fenced")
		}
		if got := w.committed(w.lanes[0]); len(got) != 0 {
			t.Errorf("readers got %q", got)
		}
	})
}

func TestFence_SaysHowFarItGot(t *testing.T) {
	bubble(t, []string{"audit"}, func(t *testing.T, w *world) {
		w.Fault(t, kmsg.InitProducerID, kfaketest.Fault{Mode: kfaketest.Error, Code: kerr.TransactionalIDAuthorizationFailed, Skip: 2, Times: -1})
		fenced, err := lease.Fence(w.ctx(), w.cl, w.pipeline, 5*time.Second)
		if err == nil || !strings.Contains(err.Error(), "fence transactional id shop.writer.2") {
			t.Errorf("got %v", err)
		}
		for i, f := range fenced {
			if f.Done != (i < 2) {
				t.Errorf("got %+v", f)
			}
		}
	})
}

func TestFence_HasADeadlineForEachID(t *testing.T) {
	bubble(t, []string{"audit"}, func(t *testing.T, w *world) {
		f := w.Fault(t, kmsg.InitProducerID, kfaketest.Fault{Mode: kfaketest.Hang, Skip: 1, Times: -1})
		began := time.Now()
		_, err := lease.Fence(w.ctx(), w.cl, w.pipeline, 3*time.Second)
		f.Release()
		if err == nil || !strings.Contains(err.Error(), "not fenced within 3s") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second { // the bubble's clock
			t.Errorf("took %s", took)
		}
	})
}

// committed returns what readers of committed data find in a lane.
func (w *world) committed(l topics.Lane) (values []string) {
	w.t.Helper()
	stable, _ := w.ends(l)
	cl := w.Client(w.t, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.Topic(): {0: kgo.NewOffset().AtStart()}}))
	for next := int64(0); next < stable; {
		fs := cl.PollFetches(w.ctx())
		if err := fs.Err(); err != nil {
			w.t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if !r.Attrs.IsControl() {
				values = append(values, string(r.Value))
			}
		})
	}
	return values
}
