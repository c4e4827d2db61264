package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/offsets"
)

// showing is what the commands take that show a report on a pipeline.
type showing struct {
	incarnation *string       // nil for a command that does not name one
	every       time.Duration // of --watch; 0 to show one report
}

// incarnationFlag registers --incarnation.
func incarnationFlag(cmd *cobra.Command) *string {
	named := cmd.Flags().String("incarnation", "", "source incarnation `name` that counts (default: the newest header's)")
	completeFlag(cmd, "incarnation", completeNothing)
	return named
}

// watchEvery is how often --watch looks when it is not told.
const watchEvery = 2 * time.Second

// addWatch registers --watch.
func (s *showing) addWatch(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&s.every, "watch", 0, "go on until Ctrl-C, with a new report every `interval` (--watch alone: 2s)")
	f.Lookup("watch").NoOptDefVal = watchEvery.String()
	completeFlag(cmd, "watch", completeNothing)
}

func completeFlag(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	// It fails for a flag that is not there: TestCompletion would miss it.
	_ = cmd.RegisterFlagCompletionFunc(flag, complete)
}

// view is a report as it is shown.
type view struct {
	*status.Report
	rates map[string]status.Rate // by sink; nil for the first report
}

// page is where an answer in text is written.
type page struct {
	bytes.Buffer
	palette
	// What it should do with; 0 for [maxColumns] and for any number of rows.
	columns, rows int
}

// width is how wide lines may be.
func (p *page) width() int {
	if p.columns <= 0 {
		return maxColumns
	}
	return max(minColumns, min(p.columns, maxColumns))
}

// answer is what a command makes of a report.
type answer struct {
	options status.Options
	more    func(context.Context, *cluster, *status.Report) error // what else it reads; nil for nothing
	json    func(view) any
	text    func(*page, view) error
	found   func(view) []string // what makes the exit code 1
}

// show connects and answers with one report, or with one after the other.
func (t *target) show(ctx context.Context, s *showing, a answer) error {
	p, err := t.check()
	if err != nil {
		return err
	}
	if s.every < 0 {
		return usageError{fmt.Errorf("--watch %s: give a positive interval, as in --watch=5s", s.every)}
	}
	a.options.Sinks = t.sinks
	if s.incarnation != nil {
		a.options.Incarnation = *s.incarnation
	}
	dialing, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	client, err := t.Dial(dialing, kgo.WithHooks(new(status.Counter)), kgo.DisableClientMetrics())
	if err != nil {
		return err
	}
	defer client.Close()
	collector, err := status.New(client.Client, p, a.options)
	if err != nil {
		return err
	}
	if s.every == 0 {
		r, err := collector.Collect(dialing)
		if err == nil && a.more != nil {
			c := &cluster{Client: client, admin: kadm.NewClient(client.Client), store: offsets.New(client.Client), pipeline: p}
			err = a.more(dialing, c, r)
		}
		if err == nil {
			err = t.answer(a, view{Report: r})
		}
		return client.Explain(dialing, err)
	}
	w := &watch{target: t, answer: a, client: client, collector: collector, every: s.every}
	return w.run(ctx)
}

// answer writes one answer, and returns what was found.
func (t *target) answer(a answer, v view) error {
	if t.format == "json" {
		if err := writeJSON(t.out, a.json(v)); err != nil {
			return err
		}
		return found(a.found(v))
	}
	p := &page{palette: t.palette()}
	if err := a.text(p, v); err != nil {
		return err
	}
	if _, err := p.WriteTo(t.out); err != nil {
		return err
	}
	return found(a.found(v))
}

// watch answers with one report after the other.
type watch struct {
	*target
	answer

	client    *connect.Client
	collector *status.Collector
	every     time.Duration

	last *status.Report // that was shown
	n    int
}

// run goes on until ctx ends. What was found by the last report is its error.
func (w *watch) run(ctx context.Context) (err error) {
	var s *screen
	if w.columns > 0 && w.format != "json" {
		s = &screen{out: w.out, size: w.size}
	}
	var v view
	var failed error
	defer func() {
		if s == nil || !s.open {
			return
		}
		err = errors.Join(s.close(), w.leave(v, failed), err)
	}()
	for {
		began := time.Now()
		v, failed = w.look(ctx)
		if ctx.Err() != nil {
			v, failed = view{Report: w.last}, nil // what was asked for was not waited for
			break
		}
		if werr := w.write(s, v, failed); werr != nil {
			return werr
		}
		w.last = v.Report
		timer := time.NewTimer(max(0, w.every-time.Since(began)))
		select {
		case <-timer.C:
			continue
		case <-ctx.Done():
			timer.Stop()
		}
		break
	}
	if failed != nil {
		return failed
	}
	if v.Report == nil {
		return context.Cause(ctx)
	}
	return found(w.found(v))
}

// look collects the next report.
func (w *watch) look(ctx context.Context) (view, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	r, err := w.collector.Collect(ctx)
	if err != nil {
		return view{}, w.client.Explain(ctx, err)
	}
	v := view{Report: r}
	if w.last != nil {
		v.rates = status.Rates(w.last, r)
	}
	return v, nil
}

// write shows a report, or why there is none: never the one before instead.
func (w *watch) write(s *screen, v view, failed error) error {
	if w.format == "json" {
		if failed != nil {
			return writeLine(w.out, struct {
				Pipeline string    `json:"pipeline"`
				At       time.Time `json:"at"`
				Error    string    `json:"error"`
			}{w.name, time.Now().UTC().Truncate(time.Millisecond), failed.Error()})
		}
		return writeLine(w.out, w.json(v))
	}
	if s == nil {
		text, err := w.page(v, failed, 0, 0)
		if err != nil {
			return err
		}
		if w.n++; w.n > 1 {
			text = "\n" + text
		}
		_, err = io.WriteString(w.out, text)
		return err
	}
	below := fmt.Sprintf("every %s; Ctrl-C ends", w.every)
	if v.Report != nil {
		below = fmt.Sprintf("%s, %d requests in %.0f ms; %s", v.At.Local().Format("15:04:05"), v.Cost.Requests, v.Cost.Seconds*1000, below)
	}
	var perr error
	err := s.draw(func(columns, rows int) (text string) {
		text, perr = w.page(v, failed, columns, rows)
		return text
	}, w.palette().faint(below))
	return errors.Join(perr, err)
}

// page is a report in text, or why there is none.
func (w *watch) page(v view, failed error, columns, rows int) (string, error) {
	p := &page{palette: w.palette(), columns: columns, rows: rows}
	if failed != nil {
		err := paragraph(p, p.bad("no answer")+"  ", failed.Error())
		return p.String(), err
	}
	err := w.text(p, v)
	return p.String(), err
}

// leave writes the last report where it stays when the screen is given back.
func (w *watch) leave(v view, failed error) error {
	if v.Report == nil && failed == nil {
		return nil
	}
	text, err := w.page(v, failed, 0, 0)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w.out, text)
	return err
}

// writeLine writes an answer as one line of JSON.
func writeLine(w io.Writer, answer any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(answer)
}
