package feeds

import (
	"context"
	"time"
)

// SetFirstPause shortens the pauses between attempts at the bucket, for tests
// outside of bubbles.
func (c *Client) SetFirstPause(d time.Duration) { c.firstPause = d }

// Trim is the last step of a seal, as of a holder that does it late.
func (s *Session) Trim(ctx context.Context) error { return s.trim(ctx) }
