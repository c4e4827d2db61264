package bench

import (
	"math"
	"slices"
)

// Spread is what a set of samples looks like.
type Spread struct {
	Median  float64 `json:"median"`
	Q1      float64 `json:"q1"`
	Q3      float64 `json:"q3"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Samples int     `json:"samples"`
}

// SpreadOf returns the spread of samples in any order.
func SpreadOf(samples []float64) Spread {
	if len(samples) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(samples))
	return Spread{
		Median: Quantile(sorted, 0.5), Q1: Quantile(sorted, 0.25), Q3: Quantile(sorted, 0.75),
		Min: sorted[0], Max: sorted[len(sorted)-1], Samples: len(sorted),
	}
}

// Quantile returns the q-quantile of sorted samples, between two of them by
// their distance.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	below := int(at)
	if below+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[below] + (at-float64(below))*(sorted[below+1]-sorted[below])
}
