package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/lease"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// peek is what `lane peek` was asked for.
type peek struct {
	*target
	begin

	count               int
	follow              bool
	index, id           string
	values, keys, heads bool
	full                bool
}

func newLanePeek(t *target) *cobra.Command {
	p := &peek{target: t}
	cmd := &cobra.Command{
		Use:   "peek SINK",
		Short: "Show what is in a lane, item by item",
		Long: `Show the items of a lane: their headers decoded, and their envelopes. No group
is joined and nothing is committed; what a transaction wrote that was aborted,
or is still open, never shows. It begins at the lane's floor, which is the
first item that its sink has not acked, or where a flag says; an item that it
begins inside of is passed over. It ends after --count items or at the end of
what is committed, and tells what lies behind an open transaction.

Records that are no item, and items that break the lane's order, are shown as
such and passed: a sink stops there, and the exit code is 1.

JSON is one object on each line, "type" says what: an item, what was passed
over, damage, and at last the end.`,
		Example: `  $ flusso-kafka-admin lane peek search --pipeline shop --count 1
  sequence 2  live batch, position 20, through 20, built 2.1 min ago
    offsets 2 to 3, 2 envelopes, 26 B, 2 changes; incarnation test-1, writer epoch 1
    lane up to here: 2 items, 4 envelopes, 52 B, 4 changes
    upsert  orders/1     7 B
    delete  orders/gone
  more follows: go on with --from-offset 4`,
		Args:              oneSink,
		ValidArgsFunction: completeSinks(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.check(cmd); err != nil {
				return err
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *cluster) error {
				lane, err := laneOf(c, args[0])
				if err != nil {
					return err
				}
				return p.answer(ctx, cmd.Context(), c, lane)
			})
		},
	}
	p.addTo(cmd)
	flags := cmd.Flags()
	flags.IntVar(&p.count, "count", 10, "`items` to show, 0 for all")
	flags.BoolVar(&p.follow, "follow", false, "wait for more, until interrupted or --count")
	flags.StringVar(&p.index, "index", "", "show only items and envelopes of the index of that `name`")
	flags.StringVar(&p.id, "id", "", "show only items and envelopes of the `document` with that id")
	flags.BoolVar(&p.keys, "keys", false, "show the keys of envelopes (the default)")
	flags.BoolVar(&p.values, "values", false, "show the documents too")
	flags.BoolVar(&p.heads, "headers", false, "show no envelopes at all")
	flags.BoolVar(&p.full, "full", false, "with --values: do not cut documents to the width and to 20 lines")
	return cmd
}

// oneSink takes the name of one sink.
func oneSink(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError{fmt.Errorf("name one sink: see %s --help", cmd.CommandPath())}
	}
	return nil
}

// laneOf returns the lane of a sink that the pipeline has.
func laneOf(c *cluster, sink string) (topics.Lane, error) {
	if err := flusso.CheckSink(sink, sinksOf(c.lanes)); err != nil {
		return topics.Lane{}, err
	}
	return c.pipeline.Lane(sink)
}

func (p *peek) check(cmd *cobra.Command) error {
	switch {
	case p.count < 0:
		return usageError{fmt.Errorf("--count %d: give how many items to show, or 0 for all", p.count)}
	case p.full && !p.values:
		return usageError{errors.New("--full is for --values: add it")}
	}
	if p.follow && !cmd.Flags().Changed("count") {
		p.count = 0
	}
	if err := exclusive(cmd, "keys", "values", "headers"); err != nil {
		return err
	}
	return p.begin.check(cmd)
}

// answer shows items. Looking where to begin is bounded by ctx, following by
// life alone.
func (p *peek) answer(ctx, life context.Context, c *cluster, lane topics.Lane) error {
	from, err := p.offset(ctx, c, lane)
	if err != nil {
		return err
	}
	view := p.view()
	var what []string
	for _, note := range from.notes {
		if err := view.note(note); err != nil {
			return err
		}
	}
	what = append(what, from.what...)
	reading := ctx
	if p.follow {
		reading = life
	}
	next, shown, more, troubles := from.offset, 0, false, 0
	for item, err := range c.store.Items(reading, lane, offsets.Reading{From: from.offset, Follow: p.follow}) {
		if err != nil {
			return err
		}
		if p.count > 0 && shown == p.count {
			more = true
			break
		}
		next = item.Next()
		if problem := trouble(lane, item); problem != "" {
			if troubles++; troubles <= troublesTold {
				what = append(what, problem)
			}
		}
		if !p.wanted(item) {
			continue
		}
		if err := view.item(item); err != nil {
			return err
		}
		if item.Item != nil || item.Damage == nil && !item.EndOnly {
			shown++
		}
		if p.follow && shown == p.count && p.count > 0 {
			break // whether more follows, nobody waits to see
		}
	}
	if troubles > troublesTold {
		what = append(what, fmt.Sprintf("and %d more like these", troubles-troublesTold))
	}
	if p.follow && life.Err() != nil {
		return found(what)
	}
	if p.follow { // for longer than any command takes, maybe
		fresh, cancel := context.WithTimeout(life, p.timeout)
		defer cancel()
		ctx = fresh
	}
	end, err := lookBehind(ctx, c, lane)
	if err != nil {
		return err
	}
	end.Next, end.More, end.Shown = offset(next), more, shown
	if err := view.end(end); err != nil {
		return err
	}
	return found(what)
}

// troublesTold is how many of the troubles that are shown are told again.
const troublesTold = 3

// trouble says what is wrong with an item, empty for nothing.
func trouble(lane topics.Lane, i offsets.Item) string {
	switch {
	case i.Damage != nil:
		return fmt.Sprintf("lane of %s, offset %s: %v: a sink stops there", lane.Sink, i.First, i.Damage)
	case i.Broken != nil:
		return fmt.Sprintf("lane of %s, offset %s: %v: a sink stops there", lane.Sink, i.First, i.Broken)
	}
	return ""
}

// wanted reports whether the filters let an item through; damage always shows.
func (p *peek) wanted(i offsets.Item) bool {
	if i.Damage != nil || i.EndOnly || p.index == "" && p.id == "" {
		return true
	}
	switch it := i.Item.(type) {
	case *flusso.Batch:
		for k := range it.Envelopes {
			if p.matches(&it.Envelopes[k]) {
				return true
			}
		}
	case *flusso.SnapshotComplete:
		for _, index := range it.Indexes {
			if p.id == "" && index == p.index {
				return true
			}
		}
	}
	return false
}

func (p *peek) matches(e *flusso.Envelope) bool {
	return (p.index == "" || e.Index == p.index) && (p.id == "" || e.ID == p.id)
}

// peekEnd is what is said at the end of the items.
type peekEnd struct {
	Type   string     `json:"type"` // "end"
	Topic  string     `json:"topic"`
	Shown  int        `json:"shown"`
	Next   offset     `json:"nextOffset"`
	More   bool       `json:"more"`
	Start  offset     `json:"startOffset"`
	Stable offset     `json:"stableOffset"`
	High   offset     `json:"endOffset"`
	Open   []peekOpen `json:"open"`
	Error  string     `json:"openError,omitempty"`
}

// peekOpen is a transaction that readers wait for.
type peekOpen struct {
	Offset         offset  `json:"offset"`
	ProducerID     int64   `json:"producerId"`
	ID             string  `json:"transactionalId,omitempty"`
	BlockedSeconds float64 `json:"blockedSeconds"`
	Hanging        bool    `json:"hanging"`
}

// lookBehind looks at the ends of a lane, and whose transaction is open there.
func lookBehind(ctx context.Context, c *cluster, lane topics.Lane) (peekEnd, error) {
	ends, err := c.store.Ends(ctx, []topics.Lane{lane})
	if err != nil {
		return peekEnd{}, err
	}
	e := ends[lane]
	end := peekEnd{
		Type: "end", Topic: lane.Topic(), Open: []peekOpen{},
		Start: offset(e.Start), Stable: offset(e.Stable), High: offset(e.High),
	}
	if e.Stable == e.High {
		return end, nil
	}
	state := lease.Describe(ctx, c.Client.Client, c.pipeline, []topics.Lane{lane})
	for _, t := range state.Open {
		end.Open = append(end.Open, peekOpen{
			Offset: offset(t.Offset), ProducerID: t.ProducerID, ID: t.ID, BlockedSeconds: t.Blocked.Seconds(), Hanging: t.Hanging,
		})
	}
	if err := state.Err(); err != nil && len(end.Open) == 0 {
		end.Error = err.Error()
	}
	return end, nil
}

// begin says where in a lane a command begins.
type begin struct {
	fromOffset   int64
	fromPosition uint64
	fromTime     string
	floor, start bool
	tail         uint64

	time time.Time
	kind string // of the flags that was given, empty for none
}

func (b *begin) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Int64Var(&b.fromOffset, "from-offset", 0, "begin at that `offset`")
	flags.Uint64Var(&b.fromPosition, "from-position", 0, "begin at the first item at that `position` or above")
	flags.StringVar(&b.fromTime, "from-time", "", "begin at the first item built at that `time` or later, or age (2h)")
	flags.BoolVar(&b.floor, "from-floor", false, "begin at the first item not acked (the default)")
	flags.BoolVar(&b.start, "from-start", false, "begin with the oldest item that is retained")
	flags.Uint64Var(&b.tail, "tail", 0, "begin so many `items` before the end")
}

// exclusive refuses more than one of some flags.
func exclusive(cmd *cobra.Command, names ...string) error {
	var given []string
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) > 1 {
		return usageError{fmt.Errorf("%s exclude each other: give one of them", strings.Join(given, " and "))}
	}
	return nil
}

func (b *begin) check(cmd *cobra.Command) (err error) {
	if err := exclusive(cmd, "from-offset", "from-position", "from-time", "from-floor", "from-start", "tail"); err != nil {
		return err
	}
	for _, name := range []string{"from-offset", "from-position", "from-time", "from-start", "tail"} {
		if cmd.Flags().Changed(name) {
			b.kind = name
		}
	}
	switch b.kind {
	case "from-offset":
		if b.fromOffset < 0 {
			return usageError{fmt.Errorf("--from-offset %d: give an offset of the lane", b.fromOffset)}
		}
	case "from-position":
		if b.fromPosition == 0 {
			return usageError{errors.New("--from-position 0: positions begin at 1; --from-start begins with the oldest item")}
		}
	case "from-time":
		b.time, err = moment("--from-time", b.fromTime, time.Now())
	case "tail":
		if b.tail == 0 {
			return usageError{errors.New("--tail 0: give how many items to show")}
		}
	}
	return err
}

// beginning is an offset to begin at, with what is to be said of it.
type beginning struct {
	offset flusso.Offset
	notes  []string // for people
	what   []string // that are findings
}

// offset translates what was asked for.
func (b *begin) offset(ctx context.Context, c *cluster, lane topics.Lane) (out beginning, err error) {
	var tr offsets.Translation
	switch b.kind {
	case "":
		return b.atFloor(ctx, c, lane)
	case "from-offset":
		return beginning{offset: flusso.Offset(b.fromOffset)}, nil
	case "from-start":
		return beginning{offset: flusso.NoOffset}, nil
	case "from-position":
		tr, err = c.store.TranslatePosition(ctx, lane, flusso.Position(b.fromPosition-1))
	case "from-time":
		tr, err = c.store.TranslateTime(ctx, lane, b.time)
	case "tail":
		tr, err = c.store.TranslateTail(ctx, lane, b.tail)
	}
	var unknown *offsets.UnknownError
	if errors.As(err, &unknown) && unknown.Start >= 0 {
		out.offset = unknown.Start
		if unknown.Start > 0 {
			out.notes = append(out.notes, fmt.Sprintf("the log starts at offset %s: what was before is gone", unknown.Start))
		}
		return out, nil
	}
	return beginning{offset: tr.Offset}, err
}

// atFloor begins where the sink's group stands.
func (b *begin) atFloor(ctx context.Context, c *cluster, lane topics.Lane) (beginning, error) {
	one := []topics.Lane{lane}
	commits, err := c.store.Commits(ctx, one)
	if err != nil {
		return beginning{}, err
	}
	ends, err := c.store.Ends(ctx, one)
	if err != nil {
		return beginning{}, err
	}
	commit, e := commits[lane], ends[lane]
	switch {
	case commit.State != offsets.Present:
		return beginning{offset: e.Start, notes: []string{"group " + lane.Group() + " has no offset: beginning at the log start"}}, nil
	case commit.Offset < e.Start:
		text := fmt.Sprintf("gap: group %s is at offset %s, the log starts at offset %s", lane.Group(), commit.Offset, e.Start)
		return beginning{offset: e.Start, notes: []string{text + ": beginning there"}, what: []string{text}}, nil
	case commit.Offset > e.High:
		text := fmt.Sprintf("group %s is at offset %s, the log ends at offset %s: it was truncated or the topic recreated", lane.Group(), commit.Offset, e.High)
		return beginning{offset: e.High, what: []string{text}}, nil
	}
	return beginning{offset: commit.Offset}, nil
}

// openText says in words what lies behind a transaction.
func (e peekEnd) openText() string {
	if e.Stable == e.High {
		return ""
	}
	verb := "lie"
	if e.High-1 == e.Stable {
		verb = "lies"
	}
	text := fmt.Sprintf("%s %s behind an open transaction, to be seen when that ends", span(flusso.Offset(e.Stable), flusso.Offset(e.High-1)), verb)
	var who []string
	for _, o := range e.Open {
		by := fmt.Sprintf("producer %d", o.ProducerID)
		if o.ID != "" {
			by += " (" + o.ID + ")"
		}
		by += fmt.Sprintf(" since offset %d, for %s", o.Offset, tied(age(time.Duration(o.BlockedSeconds*float64(time.Second)))))
		if o.Hanging {
			by += ", and it hangs"
		}
		who = append(who, by)
	}
	switch {
	case len(who) > 0:
		text += ": " + strings.Join(who, "; ")
	case e.Error != "":
		text += "; whose it is is not known: " + e.Error
	}
	return text
}
