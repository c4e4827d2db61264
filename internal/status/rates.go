package status

import "time"

// Flow is how much moves in a second.
type Flow struct {
	Batches   float64 `json:"batches"`
	Envelopes float64 `json:"envelopes"`
	Bytes     float64 `json:"bytes"`
}

// Rate is what moved in a lane between two reports.
type Rate struct {
	Seconds   float64 `json:"seconds"`   // between the two
	Delivered *Flow   `json:"delivered"` // acked by the sink; null when it is not known
	Published *Flow   `json:"published"` // by the writer; null when it is not known
}

// Rates returns by sink what moved between two reports on a pipeline, the
// earlier one first. A lane that was recreated, or whose sink was rewound, has
// no rate of what went back: never a negative one. It is pure.
func Rates(prev, cur *Report) map[string]Rate {
	if prev == nil || cur == nil {
		return map[string]Rate{}
	}
	took := cur.At.Sub(prev.At)
	before := make(map[string]*Lane, len(prev.Lanes))
	for i := range prev.Lanes {
		before[prev.Lanes[i].Sink] = &prev.Lanes[i]
	}
	out := make(map[string]Rate, len(cur.Lanes))
	for i := range cur.Lanes {
		l := &cur.Lanes[i]
		r := Rate{Seconds: max(0, took.Seconds())}
		if b := before[l.Sink]; b != nil && took > 0 && l.TopicID == b.TopicID && l.TopicID != "" {
			r.Delivered = flow(b.AckedTotals, l.AckedTotals, took)
			r.Published = flow(b.TailTotals, l.TailTotals, took)
		}
		out[l.Sink] = r
	}
	return out
}

func flow(a, b *Totals, took time.Duration) *Flow {
	if a == nil || b == nil || b.Batches < a.Batches || b.Envelopes < a.Envelopes || b.Bytes < a.Bytes {
		return nil
	}
	per := func(from, to uint64) float64 { return float64(to-from) / took.Seconds() }
	return &Flow{per(a.Batches, b.Batches), per(a.Envelopes, b.Envelopes), per(a.Bytes, b.Bytes)}
}
