package main

import (
	"sync/atomic"
	"time"
)

// winding is how long a command has to wind up after an interrupt. Its zero
// value is [grace].
type winding struct{ more atomic.Int64 }

// need asks for at least so long, from now on.
func (p *winding) need(d time.Duration) {
	if p != nil {
		p.more.Store(int64(d))
	}
}

func (p *winding) get() time.Duration {
	if p == nil {
		return grace
	}
	return max(grace, time.Duration(p.more.Load()))
}
