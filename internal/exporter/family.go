package exporter

import (
	"cmp"
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// number is one series of each T, or none.
type number[T any] struct {
	name, help string
	kind       prometheus.ValueType
	value      func(T) float64 // NaN: not known

	metric metric
}

// states is one series of each T and state, of which exactly one is 1.
type states[T any] struct {
	name, help string
	all        []string
	unknown    string // the state while nothing is known; one of all
	of         func(T) string

	metric metric
}

// metric is what a sample is made from.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// builder gathers samples.
type builder struct{ out []prometheus.Metric }

// add appends a sample; a counter that is not known has none.
func (b *builder) add(m metric, value float64, labels ...string) {
	if m.kind == prometheus.CounterValue && math.IsNaN(value) {
		return
	}
	b.out = append(b.out, prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...))
}

// addNumbers appends a sample of each family; of is nil while nothing is known.
func addNumbers[T any](b *builder, families []number[*T], of *T, labels ...string) {
	for i := range families {
		f := &families[i]
		value := math.NaN()
		if of != nil {
			value = f.value(of)
		}
		b.add(f.metric, value, labels...)
	}
}

// addStates appends a sample of each state of each family; of is nil while
// nothing is known.
func addStates[T any](b *builder, families []states[*T], of *T, labels ...string) {
	for i := range families {
		f := &families[i]
		is := f.unknown
		if of != nil {
			is = cmp.Or(f.of(of), f.unknown)
		}
		labels := append(slices.Clone(labels), "")
		for _, state := range f.all {
			labels[len(labels)-1] = state
			b.add(f.metric, boolean(state == is), labels...)
		}
		if !slices.Contains(f.all, is) { // a state that is newer than this list
			labels[len(labels)-1] = is
			b.add(f.metric, 1, labels...)
		}
	}
}
