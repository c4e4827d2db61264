package main

import (
	"testing"

	"github.com/flusso/flusso-kafka/internal/status"
)

func TestCondition(t *testing.T) {
	l := status.Lane{
		Known: true, Batches: new(uint64(3)), Envelopes: new(uint64(6)), Bytes: new(uint64(10 << 20)), Changes: new(uint64(7)), Seconds: new(90.0),
	}
	for text, want := range map[string]bool{
		"": true, ">0": true, "> 3": false, ">=3": true, "<3": false, "<=3": true, "=3": true, "!=3": false, "batches>2": true,
		"envelopes=6": true, "changes>7": false, "bytes>10MiB": false, "bytes>=10MiB": true, "bytes > 10 MB": true, "bytes<1GiB": true,
		"seconds>60": true, "seconds>2min": false, "age>1.5min": false, "age>=1.5m": true, "seconds<1h": true, "seconds>1d": false,
	} {
		c, err := parseCondition(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := c.holds(l); got != want {
			t.Errorf("%q: got %t", text, got)
		}
		if !c.holds(status.Lane{}) {
			t.Errorf("%q: a lane whose lag is not known does not match", text)
		}
	}
	for _, text := range []string{"0", "lag>0", ">", ">x", ">-1", "batches>1MiB", "seconds>1KiB", "bytes>1s", ">0 and <5", "=>3"} {
		if c, err := parseCondition(text); err == nil {
			t.Errorf("%q: got %+v", text, c)
		}
	}
}

func TestSortLanes(t *testing.T) {
	lane := func(sink string, batches uint64, seconds float64, bytes uint64) status.Lane {
		return status.Lane{Sink: sink, Known: true, Batches: &batches, Seconds: &seconds, Bytes: &bytes}
	}
	for order, want := range map[string]string{"sink": "abcd", "lag": "dbca", "age": "dacb", "bytes": "dcba"} {
		lanes := []status.Lane{lane("b", 9, 1, 5), lane("a", 1, 9, 1), {Sink: "d"}, lane("c", 5, 5, 9)}
		sortLanes(lanes, order)
		got := ""
		for _, l := range lanes {
			got += l.Sink
		}
		if got != want {
			t.Errorf("by %s: got %s, want %s", order, got, want)
		}
	}
}
