package sink

import (
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
)

// planner turns lane items into steps. Of several operations on one document
// between two marks only the last is done: the store is durable after all or
// none of them.
type planner struct {
	steps []Step
	docs  []flusso.Envelope
	at    map[string]int
	bytes int
}

func (p *planner) add(item flusso.LaneItem, size int) error {
	p.bytes += size
	switch it := item.(type) {
	case *flusso.Batch:
		for _, e := range it.Envelopes {
			if e.ID == Every && e.Op == flusso.Delete {
				p.flush()
				p.steps = append(p.steps, Step{Open: e.Index})
				continue
			}
			p.put(e)
		}
	case *flusso.SnapshotComplete:
		p.flush()
		p.steps = append(p.steps, Step{Complete: it.Indexes})
	default:
		return &flusso.InvalidError{What: "lane item", Reason: fmt.Sprintf("%T is not known to this sink", item)}
	}
	return nil
}

func (p *planner) put(e flusso.Envelope) {
	if p.at == nil {
		p.at = make(map[string]int)
	}
	key := e.Index + "/" + e.ID
	if i, ok := p.at[key]; ok {
		p.docs[i] = e
		return
	}
	p.at[key] = len(p.docs)
	p.docs = append(p.docs, e)
}

func (p *planner) flush() {
	if len(p.docs) > 0 {
		p.steps = append(p.steps, Step{Documents: p.docs})
	}
	p.docs, p.at = nil, nil
}

func (p *planner) done() []Step {
	p.flush()
	return p.steps
}

func sizeOf(item flusso.LaneItem) int {
	b, ok := item.(*flusso.Batch)
	if !ok {
		return 0
	}
	n := 0
	for i := range b.Envelopes {
		e := &b.Envelopes[i]
		n += len(e.Index) + len(e.ID) + len(e.Document)
	}
	return n
}
