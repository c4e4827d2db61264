package feeds

import (
	"context"
	"errors"
	"time"

	"github.com/flusso/flusso-kafka/internal/wire"
)

// CheckEvents returns what is wrong with the order of some events.
func CheckEvents(events []wire.Event) error {
	s := succession{feed: "orders"}
	for _, e := range events {
		if err := s.next(e); err != nil {
			return err
		}
	}
	return nil
}

// SetFirstPause shortens the pauses between attempts at the bucket, for tests
// outside of bubbles.
func (c *Client) SetFirstPause(d time.Duration) { c.firstPause = d }

// Trim is the last step of a seal, as of a holder that does it late.
func (s *Session) Trim(ctx context.Context) error { return s.trim(ctx) }

// EncodeManifest and ParseManifest are each other's inverse.
var (
	EncodeManifest = Manifest.encode
	ParseManifest  = parseManifest
)

// Die ends the session as the death of its process would: nothing more is written.
func (s *Session) Die() { s.seg.End(errors.New("dead")) }

// Background runs f beside what the session runs.
func (s *Session) Background(f func()) { s.background.Go(f) }

// EndIfDeleted is the look that a session takes behind an error.
func (s *Session) EndIfDeleted(ctx context.Context) bool { return s.endIfDeleted(ctx) }
