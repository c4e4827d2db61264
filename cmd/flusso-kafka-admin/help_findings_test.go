package main

import (
	"strings"
	"testing"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
)

// broken is a report in which as much as can be is wrong.
func broken() *status.Report {
	now := time.Now()
	old := now.Add(-time.Hour)
	r := &status.Report{Pipeline: "shop", At: now}
	add := func(state status.LaneState, change func(*status.Lane)) {
		l := status.Lane{
			Sink: string(state), State: state, Known: true, Topic: "t", Group: "g", Batches: new(uint64(3)), Seconds: new(600.0), Bytes: new(uint64(1)),
			Consumer: status.Attached, Members: []status.Member{{ClientID: "c", Host: "h", Owner: true, Since: &old}},
		}
		change(&l)
		r.Lanes = append(r.Lanes, l)
	}
	add(status.Gap, func(l *status.Lane) { l.Gap = &status.LaneGap{} })
	add(status.Retired, func(l *status.Lane) { l.Retired = &status.Retirement{} })
	add(status.Behind, func(l *status.Lane) { l.Retention.Milliseconds = new(int64(1)) })
	add(status.Seeding, func(l *status.Lane) { l.Consumer, l.Members = status.Detached, nil })
	add(status.CaughtUp, func(*status.Lane) {})
	add(status.Errored, func(l *status.Lane) { l.TopicMissing = true })
	for _, s := range []flusso.FloorState{flusso.FloorUnverified, flusso.FloorRecreated, flusso.FloorMissing, flusso.FloorOther} {
		add(status.LaneState(s), func(l *status.Lane) { l.Attaches = 5 })
	}
	r.Writer.Open = []status.Transaction{{Hanging: true}}
	r.Requests = []status.Request{{Error: "no"}}
	return r
}

// What a finding says to run is a command that is there, with flags that it has.
func TestFindingsNameCommandsThatAreThere(t *testing.T) {
	found := status.Findings(broken())
	if len(found) < 12 {
		t.Fatalf("only %d findings: %+v", len(found), found)
	}
	for _, f := range found {
		if f.Help == "" {
			continue
		}
		args, ours := strings.CutPrefix(f.Help, "flusso-kafka-admin ")
		if !ours {
			t.Errorf("%s: %q is no command of ours", f.Code, f.Help)
			continue
		}
		if err := callable(args); err != nil {
			t.Errorf("%s: %q: %v", f.Code, f.Help, err)
		}
	}
}
