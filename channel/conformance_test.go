package channel_test

import (
	"testing"
	"testing/synctest"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/channel"
	"github.com/flusso/flusso-kafka/streamtest"
)

// excused is what an adapter in memory does not claim, and why.
var excused = map[string]string{
	"B7": "a full lane makes publish wait: the documented exception of the in-process adapter",
	"B8_a_gap_is_a_typed_error_and_nothing_is_skipped":                  "nobody can delete items behind the adapter's back",
	"B8_a_gap_ahead_of_an_attached_consumer_is_an_error_as_well":        "nobody can delete items behind the adapter's back",
	"B8_a_lane_recreated_behind_its_consumer_is_a_gap":                  "a lane in memory cannot be recreated",
	"B8_a_lane_that_was_recreated_is_a_gap_or_made_whole_by_the_replay": "a lane in memory cannot be recreated",
	"C6": "there is no group that somebody else could move",
	"C7_a_failed_lookup_leaves_the_last_value_and_says_so": "a look-up in memory cannot fail",
	"F2_an_item_above_the_limit_is_an_error_naming_it":     "there is no limit on the size of an item",
}

// pipeline is the lanes of one stream: another process's view is a reopened
// one, and a crashed one is left as it lies.
type pipeline struct{ first *channel.Stream }

func (p pipeline) Stream(t *testing.T, incarnation string) flusso.Stream {
	s, err := p.first.Reopen(incarnation)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (pipeline) Crash(*testing.T, flusso.Stream) {}

func open(t *testing.T, sinks []string) streamtest.Pipeline {
	s, err := channel.New(channel.Config{Sinks: sinks, Incarnation: "unused"})
	if err != nil {
		t.Fatal(err)
	}
	return pipeline{s}
}

func TestConformance(t *testing.T) {
	streamtest.Run(t, streamtest.Harness{Name: "channel", Open: open, Excused: excused})
}

func TestConformanceInABubble(t *testing.T) {
	streamtest.Run(t, streamtest.Harness{Name: "channel", Run: synctest.Test, Open: open, Excused: excused})
}
