package ingest

import (
	"math/rand/v2"
	"time"
)

// backoff gives growing, random delays, so that two engines that fence each
// other do not do so for ever.
type backoff struct{ step int }

const (
	shortestDelay = time.Second
	longestDelay  = 30 * time.Second
	healthy       = time.Minute // a session this long starts the delays anew
)

func (b *backoff) next(lived time.Duration) time.Duration {
	if lived > healthy {
		b.step = 0
	}
	d := min(shortestDelay<<b.step, longestDelay)
	if b.step < 5 {
		b.step++
	}
	return d/2 + rand.N(d)
}
