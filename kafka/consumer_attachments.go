package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/flusso/flusso-kafka/topics"
)

// handOver bounds how long a consumer that is superseded in this process may
// take to make its recorded acks durable. What it can't comes again.
const handOver = 3 * time.Second

// attachments are the consumers of one stream: one for each lane. The broker
// would tell a superseded one within a heartbeat; here it is told at once.
// The zero value is ready; a nil one keeps nothing.
type attachments struct {
	mu      sync.Mutex
	current map[topics.Lane]*laneConsumer
	turns   map[topics.Lane]chan struct{} // held while attaching
}

// take supersedes the lane's consumer, if there is one. done must be called
// when the new one is put, or has failed.
func (a *attachments) take(ctx context.Context, lane topics.Lane) (done func(), err error) {
	if a == nil {
		return func() {}, nil
	}
	a.mu.Lock()
	if a.turns == nil {
		a.turns = make(map[topics.Lane]chan struct{})
	}
	turn := a.turns[lane]
	if turn == nil {
		turn = make(chan struct{}, 1)
		a.turns[lane] = turn
	}
	a.mu.Unlock()
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("attach to lane of sink %q: %w", lane.Sink, context.Cause(ctx))
	}
	a.mu.Lock()
	old := a.current[lane]
	delete(a.current, lane)
	a.mu.Unlock()
	if old != nil {
		within, cancel := context.WithTimeout(ctx, handOver)
		defer cancel()
		_ = old.Supersede(within) // what it could not commit comes again
	}
	return func() { <-turn }, nil
}

func (a *attachments) put(c *laneConsumer) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current == nil {
		a.current = make(map[topics.Lane]*laneConsumer)
	}
	a.current[c.lane] = c
}

func (a *attachments) drop(c *laneConsumer) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current[c.lane] == c {
		delete(a.current, c.lane)
	}
}
