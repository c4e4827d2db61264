package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/examples/postgres/blevesink"
)

// answer is what a query gives.
type answer struct {
	Total uint64          `json:"total"`
	Hits  []blevesink.Hit `json:"hits"`
}

// serve answers queries while the sink holds its index. stop ends it.
func serve(ctx context.Context, address string, store *blevesink.Store, log *slog.Logger) (stop func(), err error) {
	l, err := listen(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /query", func(w http.ResponseWriter, r *http.Request) {
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		if err != nil || limit < 0 || limit > 10_000 {
			http.Error(w, "limit: a number from 0 to 10000", http.StatusBadRequest)
			return
		}
		hits, total, err := store.Search(r.Context(), r.URL.Query().Get("q"), limit)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := encoder(w).Encode(answer{total, hits}); err != nil {
			log.Debug("answering a query", "error", err)
		}
	})
	mux.HandleFunc("GET /documents", func(w http.ResponseWriter, r *http.Request) {
		e := encoder(w)
		err := store.Each(r.Context(), func(index, id string, document []byte) error {
			return e.Encode(blevesink.Hit{Index: index, ID: id, Document: document})
		})
		if errors.Is(err, blevesink.ErrNotOpen) {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		if err != nil {
			log.Warn("listing the documents", "error", err)
			panic(http.ErrAbortHandler) // the only way to tell the reader that it is not all
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Warn("answering queries ended", "error", err)
		}
	}()
	log.Info("answering queries", "address", l.Addr().String())
	return func() {
		_ = server.Close()
		<-done
	}, nil
}

// listen waits a little for a predecessor that was killed a moment ago.
func listen(ctx context.Context, address string) (net.Listener, error) {
	const patience, every = 5 * time.Second, 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var config net.ListenConfig
	for {
		l, err := config.Listen(ctx, "tcp", address)
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// encoder writes documents as they are, so that compare sees the same bytes.
func encoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}

// index is a search index in a directory, or behind a running sink.
type index struct {
	dir, address string
}

func (i *index) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&i.dir, "dir", "", "`directory` of the search index, when its sink is stopped")
	cmd.Flags().StringVar(&i.address, "address", "", "`host:port` that a running sink listens on")
}

func (i *index) get(ctx context.Context, path string, values url.Values) (io.ReadCloser, error) {
	u := url.URL{Scheme: "http", Host: i.address, Path: path, RawQuery: values.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, usagef("--address: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the sink: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
		_ = res.Body.Close()
		return nil, fmt.Errorf("ask the sink: %s: %s", res.Status, text)
	}
	return res.Body, nil
}

// open opens a stopped sink's index. It does not wait for one that runs.
func (i *index) open(ctx context.Context, log *slog.Logger) (*blevesink.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	store := blevesink.New(i.dir, log)
	if err := store.Acquire(ctx); err != nil {
		return nil, fmt.Errorf("%w (while its sink runs, ask it: --address)", err)
	}
	return store, nil
}

func newQuery(_ streams, logger logging) *cobra.Command {
	var i index
	var limit int
	cmd := &cobra.Command{
		Use:   "query TEXT",
		Short: "Search the index of sink-bleve",
		Long: `Searches with Bleve's query string syntax: words, column:word, +required,
-excluded, column:>10. The field _index holds schema.table.`,
		Example: `  flusso-postgres query --address localhost:8094 '+_index:public.orders customer:alice'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(1)(cmd, args); err != nil {
				return usageError{err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := logger()
			if err != nil {
				return err
			}
			var a answer
			switch {
			case i.address != "":
				body, err := i.get(cmd.Context(), "/query", url.Values{"q": {args[0]}, "limit": {strconv.Itoa(limit)}})
				if err != nil {
					return err
				}
				defer func() { _ = body.Close() }()
				if err := json.NewDecoder(body).Decode(&a); err != nil {
					return fmt.Errorf("read the answer: %w", err)
				}
			case i.dir != "":
				store, err := i.open(cmd.Context(), log)
				if err != nil {
					return err
				}
				defer func() { _ = store.Release(cmd.Context()) }()
				if a.Hits, a.Total, err = store.Search(cmd.Context(), args[0], limit); err != nil {
					return err
				}
			default:
				return usagef("which index: give --dir or --address")
			}
			for _, h := range a.Hits {
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s/%s\t%s\n", h.Index, h.ID, h.Document); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d documents\n", len(a.Hits), a.Total)
			return err
		},
	}
	i.addFlags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 10, "how many documents to print")
	return cmd
}

// each reads all documents of an index.
func (i *index) each(ctx context.Context, log *slog.Logger, f func(index, id string, document []byte) error) error {
	if i.address == "" {
		store, err := i.open(ctx, log)
		if err != nil {
			return err
		}
		defer func() { _ = store.Release(ctx) }()
		return store.Each(ctx, f)
	}
	body, err := i.get(ctx, "/documents", nil)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	d := json.NewDecoder(bufio.NewReader(body))
	for {
		var h blevesink.Hit
		switch err := d.Decode(&h); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the sink's documents: %w", err)
		}
		if err := f(h.Index, h.ID, h.Document); err != nil {
			return err
		}
	}
}
