package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/profile"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

func TestTheNextCommandToTry(t *testing.T) {
	tests := []struct {
		name  string
		path  string
		flags []string
		err   error
		want  string // before the #
	}{
		{"no connection", "lag", nil, &connect.Error{Tried: "connect", Cause: errors.New("refused"), Advice: "check"}, "profile show"},
		{"with the flags that were given", "lag", []string{"--brokers", "a:1,b:2", "--pipeline", "shop", "--tls", "--timeout", "3s"}, &connect.Error{Cause: errors.New("refused")}, "profile show --brokers a:1,b:2 --pipeline shop --tls"},
		{"a value that a shell would read", "lag", []string{"--sasl-user", "o'neill & co"}, &connect.Error{Cause: errors.New("refused")}, `profile show --sasl-user 'o'\''neill & co'`},
		{"denied to look", "lag", nil, kafkaerr.Wrap("list offsets", kerr.TopicAuthorizationFailed), "topic check --role viewer"},
		{"denied to act", "lane accept", nil, kafkaerr.Wrap("commit", kerr.GroupAuthorizationFailed), "topic check --role operator"},
		{"denied to read a feed", "read", []string{"orders"}, kafkaerr.Wrap("read", kerr.TopicAuthorizationFailed), "topic check --feed orders --role feed-reader"},
		{"denied to append", "append", []string{"orders", "--brokers", "a:1"}, kafkaerr.Wrap("open", kerr.TransactionalIDAuthorizationFailed), "topic check --feed orders --role feed-writer --brokers a:1"},
		{"denied to delete a feed", "feed delete", []string{"orders"}, kafkaerr.Wrap("delete", kerr.TopicAuthorizationFailed), "topic check --feed orders --role feed-operator"},
		{"denied to list feeds", "feed list", nil, kafkaerr.Wrap("list", kerr.TopicAuthorizationFailed), "profile show"},
		{"no such feed", "feed history", []string{"nope"}, fmt.Errorf("feed nope: %w", feeds.ErrNoFeed), "feed list"},
		{"nothing to resume", "feed resume", []string{"orders", "1"}, &feeds.NoStreamError{Feed: "orders", Stream: 1}, "feed describe orders"},
		{"no lane", "status", []string{"--pipeline", "shop"}, &status.NoLanesError{}, "topic apply --sinks SINK,… --dry-run --pipeline shop"},
		{"no lane, where others have some", "status", []string{"--pipeline", "shop"}, &status.NoLanesError{Others: make([]topics.Pipeline, 1)}, ""},
		{"an action that nobody confirmed", "topic apply", []string{"--pipeline", "shop", "--sinks", "a,b"}, usageError{&unconfirmedError{"it creates"}}, "topic apply --sinks a,b --dry-run --pipeline shop"},
		{"with what it was called with", "lane retire", []string{"search", "--why", "moved away"}, usageError{&unconfirmedError{"it retires"}}, "lane retire search --why 'moved away' --dry-run"},
		{"a file that is not there", "lane replay", nil, fmt.Errorf("read: %w", &fs.PathError{Op: "stat", Path: "item.jsonl", Err: fs.ErrNotExist}), ""},
		{"an address that is taken", "serve", nil, &listenError{errors.New("in use")}, "serve --listen 127.0.0.1:0"},
		{"unknown sink", "lane peek", nil, &flusso.UnknownSinkError{Sink: "x"}, "lane list"},
		{"members", "lane accept", []string{"search", "--dry-run"}, &offsets.GroupActiveError{Group: "g"}, "lane describe search"},
		{"too old", "status", nil, &topics.TooOldError{}, "topic check"},
		{"usage", "lane peek", nil, usageError{errors.New("name one sink")}, "lane peek --help"},
		{"a name", "lag", nil, fmt.Errorf("open: %w", &flusso.NameError{Kind: "sink"}), "lag --help"},
		{"profile", "lag", nil, &profile.Error{Where: "--profile", Reason: "no"}, "profile list"},
		{"a profile that was named", "lag", []string{"--profile", "nope"}, &profile.Error{Where: "--profile", Reason: "no"}, "profile list"},
		{"profile file", "lag", []string{"--profile", "prod"}, &profile.Error{Where: "config.toml:2", Reason: "no"}, "profile show --profile none"},
		{"findings", "lag", nil, found([]string{"behind"}), "status"},
		{"findings of status, which says what helps", "status", nil, found([]string{"behind"}), ""},
		{"an error that names one", "lag", nil, usageError{errors.New("see flusso-kafka-admin lag --help")}, ""},
		{"nothing is known", "lag", nil, errors.New("it broke"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cmd := tree(t)[tt.path]
			if err := cmd.ParseFlags(tt.flags); err != nil {
				t.Fatal(err)
			}
			command, about, _ := strings.Cut(try(cmd, tt.err), "   # ")
			want := tt.want
			if want != "" {
				want = program + " " + want
			}
			if command != want || (about == "") != (want == "") {
				t.Errorf("got %q, about %q, want %q", command, about, want)
			}
		})
	}
}
