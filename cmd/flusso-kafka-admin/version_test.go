package main

import (
	"runtime/debug"
	"testing"
)

func TestBuildSaysWhatItKnows(t *testing.T) {
	vcs := []debug.BuildSetting{
		{Key: "-trimpath", Value: "true"},
		{Key: "vcs.revision", Value: "0badcafe"},
		{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
		{Key: "vcs.modified", Value: "true"},
	}
	checkout := debug.Module{Version: "(devel)"}
	tests := []struct {
		name string
		info debug.BuildInfo
		want string
	}{
		{"nothing known", debug.BuildInfo{}, "flusso-kafka-admin unknown"},
		{"a release", debug.BuildInfo{GoVersion: "go1.25.0", Main: debug.Module{Version: "v1.2.3"}}, "flusso-kafka-admin v1.2.3 go1.25.0"},
		{"a checkout", debug.BuildInfo{Main: checkout, Settings: vcs}, "flusso-kafka-admin (devel) (revision 0badcafe with changes of 2026-01-02T03:04:05Z)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := newBuild(&tt.info).String(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 writer sessions", 1: "1 writer session", 2: "2 writer sessions"} {
		if got := count(n, "writer session", "writer sessions"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
