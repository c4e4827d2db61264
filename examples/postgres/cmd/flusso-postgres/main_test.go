package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		code int
		want string
	}{
		"password in argv":        {args: []string{"ingest", "--source", "postgres://u:secret@h/d"}, code: 2, want: "put it into $FLUSSO_SOURCE_URL"},
		"password in pairs":       {args: []string{"sink-postgres", "--target", "host=h Password = secret"}, code: 2, want: "put it into $FLUSSO_TARGET_URL"},
		"password in parameters":  {args: []string{"ingest", "--source", "postgres://u@h/d?password=secret"}, code: 2, want: "put it into"},
		"no source":               {args: []string{"ingest"}, code: 2, want: "set $FLUSSO_SOURCE_URL"},
		"no directory":            {args: []string{"sink-bleve"}, code: 2, want: "--dir"},
		"no brokers":              {args: []string{"sink-bleve", "--dir", "d"}, code: 2, want: "--brokers"},
		"no command":              {args: nil, code: 2, want: "name a command"},
		"unknown command":         {args: []string{"ingets"}, code: 2, want: `unknown command "ingets"`},
		"unknown flag":            {args: []string{"ingest", "--nosuch"}, code: 2, want: "nosuch"},
		"argument":                {args: []string{"ingest", "now"}, code: 2, want: "now"},
		"log level":               {args: []string{"ingest", "--log-level", "loud"}, code: 2, want: "--log-level"},
		"query without an index":  {args: []string{"query", "x"}, code: 2, want: "--dir or --address"},
		"compare without a sink":  {args: []string{"compare"}, env: map[string]string{"FLUSSO_SOURCE_URL": "postgres://h/d"}, code: 2, want: "FLUSSO_TARGET_URL"},
		"compare with a bad form": {args: []string{"compare", "--format", "xml"}, code: 2, want: "text or json"},
		"ingest without brokers":  {args: []string{"ingest"}, env: map[string]string{"FLUSSO_SOURCE_URL": "postgres://127.0.0.1:1/d"}, code: 2, want: "--brokers"},
		"slot":                    {args: []string{"ingest", "--slot", "A b", "--brokers", "h:1"}, env: map[string]string{"FLUSSO_SOURCE_URL": "postgres://h/d"}, code: 1, want: "invalid slot"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(context.Background(), c.args, streams{out: &out, err: &errs, getenv: func(k string) string { return c.env[k] }})
			if code != c.code || !strings.Contains(errs.String(), c.want) {
				t.Errorf("exit %d, want %d, with %q in: %s", code, c.code, c.want, errs.String())
			}
			if strings.Contains(errs.String(), "secret") {
				t.Errorf("the password is shown: %s", errs.String())
			}
			if out.Len() > 0 {
				t.Errorf("stdout has %q", out.String())
			}
		})
	}
}
