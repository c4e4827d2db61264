package status_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flusso/flusso-kafka/internal/status"
)

// counted is a report on one lane by its totals; nil is not known.
func counted(at time.Duration, topicID string, acked, tail *status.Totals) *status.Report {
	return &status.Report{At: noon.Add(at), Lanes: []status.Lane{{Sink: "archive", TopicID: topicID, AckedTotals: acked, TailTotals: tail}}}
}

func of(batches, envelopes, bytes uint64) *status.Totals {
	return &status.Totals{Batches: batches, Envelopes: envelopes, Bytes: bytes, Changes: envelopes}
}

func TestRates(t *testing.T) {
	first := counted(0, "id", of(10, 20, 1000), of(30, 60, 3000))
	for _, c := range []struct {
		name string
		cur  *status.Report
		want status.Rate
	}{
		{
			"both move", counted(4*time.Second, "id", of(18, 36, 1800), of(32, 64, 3200)),
			status.Rate{Seconds: 4, Delivered: &status.Flow{Batches: 2, Envelopes: 4, Bytes: 200}, Published: &status.Flow{Batches: 0.5, Envelopes: 1, Bytes: 50}},
		},
		{
			"nothing moves", counted(4*time.Second, "id", of(10, 20, 1000), of(30, 60, 3000)),
			status.Rate{Seconds: 4, Delivered: &status.Flow{}, Published: &status.Flow{}},
		},
		{
			"rewound", counted(4*time.Second, "id", of(5, 10, 500), of(32, 64, 3200)),
			status.Rate{Seconds: 4, Published: &status.Flow{Batches: 0.5, Envelopes: 1, Bytes: 50}},
		},
		{"recreated", counted(4*time.Second, "other", of(100, 200, 10000), of(300, 600, 30000)), status.Rate{Seconds: 4}},
		{"recreated and smaller", counted(4*time.Second, "other", of(0, 0, 0), of(1, 2, 100)), status.Rate{Seconds: 4}},
		{"not known any more", counted(4*time.Second, "", nil, nil), status.Rate{Seconds: 4}},
		{"at the same moment", counted(0, "id", of(18, 36, 1800), of(32, 64, 3200)), status.Rate{}},
		{"a clock that went back", counted(-time.Second, "id", of(18, 36, 1800), of(32, 64, 3200)), status.Rate{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(map[string]status.Rate{"archive": c.want}, status.Rates(first, c.cur)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := status.Rates(nil, first); len(got) != 0 {
		t.Errorf("without a report before: got %v", got)
	}
	fresh := counted(time.Second, "id", of(1, 1, 1), of(1, 1, 1))
	fresh.Lanes[0].Sink = "fresh"
	if got := status.Rates(first, fresh)["fresh"]; got.Delivered != nil || got.Published != nil {
		t.Errorf("a lane that was not there before: got %+v", got)
	}
}
