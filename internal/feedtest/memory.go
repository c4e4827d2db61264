package feedtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/feeds"
)

const loadOf = "FLUSSO_FEEDS_TEST_LOAD"

// load is what a process appends while its memory is looked at.
type load struct {
	Brokers []string
	Feed    string
	Staging string
	Bytes   int  // of payload, in records of 1 KiB
	Seal    bool // behind it
}

// rss is the memory of a process in MiB, as the kernel counts it.
type rss struct {
	Before, After, Sealed, Most int
	Seconds                     float64 // of the appends
}

// Memory appends 1 GiB in a process of its own, the broker elsewhere, with a
// bucket that is gone and with one that is there, and reports what the process
// holds [E11].
func Memory(b *testing.B, brokers ...string) {
	client, err := feeds.New(feeds.Config{Client: []kgo.Opt{kgo.SeedBrokers(brokers...)}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := client.Close(context.Background()); err != nil {
			b.Error(err)
		}
	}()
	for name, down := range map[string]bool{"bucket down": true, "bucket up": false} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				dir := filepath.Join(b.TempDir(), "bucket")
				l := load{Brokers: brokers, Feed: fmt.Sprintf("m%08x", rand.Uint32()), Staging: b.TempDir(), Bytes: 1 << 30, Seal: !down}
				if _, err := client.Create(b.Context(), l.Feed, feeds.CreateOptions{Keyed: true, Bucket: "file://" + filepath.ToSlash(dir)}); err != nil {
					b.Fatal(err)
				}
				if down {
					if err := os.Rename(dir, dir+"-gone"); err != nil {
						b.Fatal(err)
					}
				}
				r, err := l.start(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(r.Before), "MiB-RSS-before")
				b.ReportMetric(float64(r.After), "MiB-RSS-after")
				b.ReportMetric(float64(r.Most), "MiB-RSS-most")
				b.ReportMetric(float64(l.Bytes>>20)/r.Seconds, "MiB/s")
				if l.Seal {
					b.ReportMetric(float64(r.Sealed), "MiB-RSS-sealed")
				}
				if err := client.Delete(b.Context(), l.Feed, feeds.DeleteOptions{KeepObjects: down}); err != nil {
					b.Error(err)
				}
			}
		})
	}
}

// start runs a process that appends a load.
func (l load) start(ctx context.Context) (r rss, err error) {
	text, err := json.Marshal(l)
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), loadOf+"="+string(text))
	cmd.Stderr = os.Stderr //nolint:forbidigo // a panic of the process belongs to the test's
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("%w: %s", err, out)
	}
	return r, json.Unmarshal(out, &r)
}

// loadMain appends a load where this process is to, and does not return then.
func loadMain() {
	text := os.Getenv(loadOf)
	if text == "" {
		return
	}
	var l load
	err := json.Unmarshal([]byte(text), &l)
	if err == nil {
		err = l.run(context.Background())
	}
	if err != nil {
		say(err.Error())
		os.Exit(1) //nolint:forbidigo // this is the main of a process
	}
	os.Exit(0) //nolint:forbidigo // the same
}

func (l load) run(ctx context.Context) error {
	const size, perBatch = 1 << 10, 100
	c, err := feeds.New(feeds.Config{Client: []kgo.Opt{kgo.SeedBrokers(l.Brokers...)}, StagingDir: l.Staging})
	if err != nil {
		return err
	}
	s, err := c.Open(ctx, l.Feed)
	if err != nil {
		return err
	}
	content := make([]byte, 4<<20) // half of it compresses
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range content {
		if i/256%2 == 0 {
			content[i] = byte(rng.Uint32())
		}
	}
	var r rss
	if r.Before, _, err = resident(); err != nil {
		return err
	}
	began := time.Now()
	var last *feeds.Future
	for i := 0; i < l.Bytes/size; i += perBatch {
		batch := feeds.Batch{Records: make([]feeds.Record, perBatch)}
		for j := range batch.Records {
			at := rng.IntN(len(content) - size)
			batch.Records[j] = feeds.Record{Key: fmt.Appendf(nil, "key-%08d", i+j), Payload: content[at : at+size]}
		}
		if last, err = s.AppendAsync(ctx, batch); err != nil {
			return err
		}
	}
	if _, err := last.Wait(ctx); err != nil {
		return err
	}
	r.Seconds = time.Since(began).Seconds()
	if r.After, r.Most, err = resident(); err != nil {
		return err
	}
	if l.Seal {
		if _, err := s.Seal(ctx, ""); err != nil {
			return err
		}
		if r.Sealed, r.Most, err = resident(); err != nil {
			return err
		}
	}
	out, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(out) //nolint:forbidigo // this is the main of a process
	return err
}

// resident is the memory of this process in MiB, now and the most so far.
func resident() (now, most int, err error) {
	self, err := procfs.Self()
	if err != nil {
		return 0, 0, err
	}
	status, err := self.NewStatus()
	return int(status.VmRSS >> 20), int(status.VmHWM >> 20), err
}
