package feeds

import "time"

// SetFirstPause shortens the pauses between attempts at the bucket, for tests
// outside of bubbles.
func (c *Client) SetFirstPause(d time.Duration) { c.firstPause = d }
