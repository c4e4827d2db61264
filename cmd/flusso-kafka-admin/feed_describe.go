package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/status"
)

func newFeedDescribe(t *feedTarget) *cobra.Command {
	return &cobra.Command{
		Use:   "describe FEED",
		Short: "Show a feed: settings, holder, streams without commit",
		Long: `Show what is on record of a feed: its settings, who holds its writer lease and
where, its streams that have no commit, and what helps them to one. The lease is
not taken, and nobody is disturbed. The bucket is not asked.

JSON: docs/json.md.`,
		Example: `  $ flusso-kafka-admin feed describe hourly
  feed     hourly, with keys, the latest record of one by sequence
  bucket   file:///srv/feeds
  holder   nobody; the last was vm/18783
  event    released, 0.4 s ago, writer epoch 3
  commits  1, of 2 streams
  unsealed 7 B of at most 64.0 GiB wait for their commit

  stream  state      records  bytes  message
  2       abandoned        1    7 B  -
  ` + "`" + `flusso-kafka-admin feed resume hourly 2 --yes` + "`" + ` seals stream 2,
  ` + "`" + `flusso-kafka-admin feed discard hourly 2 --yes` + "`" + ` drops it.`,
		Args:              oneFeed,
		ValidArgsFunction: completeFeeds(t, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.run(cmd.Context(), func(ctx context.Context, c *feedCluster) error {
				d, err := c.Describe(ctx, args[0])
				if err != nil {
					return err
				}
				if t.format == "json" {
					return writeJSON(t.out, describe(d))
				}
				return t.writeDescription(d)
			})
		},
	}
}

// describedFeed is a feed as feed describe answers it.
type describedFeed struct {
	Feed         string           `json:"feed"`
	Settings     feedSettings     `json:"settings"`
	Commits      uint64           `json:"commits"`
	NewestStream uint64           `json:"newestStream"`
	Holder       feedHolder       `json:"holder"`
	Held         bool             `json:"held"`
	Event        string           `json:"event"`
	At           time.Time        `json:"at"`
	AppendedAt   *time.Time       `json:"appendedAt"` // null for none
	Streams      []unsealedStream `json:"streams"`
	Unsealed     uint64           `json:"unsealedBytes"`
	HalfFull     bool             `json:"halfFull"`
	Deleting     bool             `json:"deleting"`
	HalfDeleted  bool             `json:"halfDeleted"`
}

type feedSettings struct {
	ID               string `json:"id"`
	Keyed            bool   `json:"keyed"`
	Latest           string `json:"latest"`
	Bucket           string `json:"bucket"`
	MaxUnsealedBytes uint64 `json:"maxUnsealedBytes"`
}

type feedHolder struct {
	Name    string  `json:"name"`
	Address *string `json:"address"` // null for none
	Epoch   uint64  `json:"epoch"`
}

// unsealedStream is a stream without commit.
type unsealedStream struct {
	Stream  uint64 `json:"stream"`
	State   string `json:"state"`
	Last    uint64 `json:"last"`
	Bytes   uint64 `json:"bytes"`
	Message string `json:"message"`
}

// messageCell is a message in a table.
func messageCell(s string) string {
	if s == "" {
		return "-"
	}
	return shownText(s)
}

func settingsOf(s feeds.Settings) feedSettings {
	return feedSettings{ID: s.ID, Keyed: s.Keyed, Latest: s.Latest, Bucket: s.Bucket, MaxUnsealedBytes: s.MaxUnsealedBytes}
}

func describe(d feeds.Description) *describedFeed {
	out := &describedFeed{
		Feed: d.Feed, Settings: settingsOf(d.Settings), Commits: d.Commits, NewestStream: d.Newest,
		Holder: feedHolder{Name: d.Holder.Name, Epoch: d.Epoch}, Held: d.Held(), Event: d.Event, At: d.At.UTC(),
		Streams: []unsealedStream{}, Unsealed: d.Unsealed(), HalfFull: d.HalfFull(), Deleting: d.Deleting, HalfDeleted: d.Half,
	}
	if d.Holder.Address != "" {
		out.Holder.Address = &d.Holder.Address
	}
	if !d.Appended.IsZero() {
		out.AppendedAt = new(d.Appended.UTC())
	}
	for _, s := range d.Streams {
		out.Streams = append(out.Streams, unsealedStream{s.Number, s.State, s.Last, s.Bytes, s.Message})
	}
	return out
}

func (t *feedTarget) writeDescription(d feeds.Description) error {
	keys := "no keys"
	if d.Settings.Keyed {
		keys = "keys, the latest record of one by " + d.Settings.Latest
	}
	holder := "nobody; the last was " + d.Holder.Name
	if d.Held() {
		holder = holding(d, time.Now())
	}
	for _, line := range [][2]string{
		{"feed     ", fmt.Sprintf("%s, with %s", d.Feed, keys)},
		{"bucket   ", d.Settings.Bucket},
		{"holder   ", holder},
		{"event    ", fmt.Sprintf("%s, %s ago, writer epoch %d", d.Event, tied(age(time.Since(d.At))), d.Epoch)},
		{"commits  ", fmt.Sprintf("%d, of %s", d.Commits, status.Count(d.Newest, "stream"))},
	} {
		if err := paragraph(t.out, line[0], line[1]); err != nil {
			return err
		}
	}
	if d.Deleting {
		state := "it is being deleted"
		if d.Half {
			state = "it is half deleted, its WAL is gone"
		}
		return paragraph(t.out, "", t.hinted("%s: go on with `flusso-kafka-admin feed delete %s --yes`", state, d.Feed))
	}
	if len(d.Streams) == 0 {
		return nil
	}
	waits := fmt.Sprintf("%s of at most %s wait for their commit", tied(size(d.Unsealed())), tied(size(d.Settings.MaxUnsealedBytes)))
	if d.HalfFull() {
		waits += ", more than half: above the limit appends are refused"
	}
	if err := paragraph(t.out, "unsealed ", waits); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(t.out); err != nil {
		return err
	}
	tab := &table{right: []bool{false, false, true, true, false}}
	tab.add("stream", "state", "records", "bytes", "message")
	var help []string
	for _, s := range d.Streams {
		tab.add(fmt.Sprint(s.Number), s.State, fmt.Sprint(s.Last), size(s.Bytes), messageCell(s.Message))
		switch s.State {
		case "sealed":
			help = append(help, fmt.Sprintf("`flusso-kafka-admin feed repair %s --yes` finishes stream %d.", d.Feed, s.Number))
		case "abandoned":
			help = append(help, fmt.Sprintf("`flusso-kafka-admin feed resume %s %d --yes` seals stream %d, `flusso-kafka-admin feed discard %s %d --yes` drops it.", d.Feed, s.Number, s.Number, d.Feed, s.Number))
		}
	}
	tab.headings(t.palette())
	if err := tab.writeTo(t.out); err != nil || len(help) == 0 {
		return err
	}
	return paragraph(t.out, "", t.hinted("%s", strings.Join(help, " ")))
}
