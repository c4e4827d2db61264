package streamtest

import (
	flusso "github.com/flusso/flusso-kafka"
)

var ackClauses = []clause{
	{"B6_floor_moves_over_a_contiguous_prefix", checkB6},
	{"B6_an_ack_out_of_turn_does_not_survive_a_crash_of_its_consumer", checkB6Crash},
	{"B7_a_stalled_sink_blocks_neither_the_producer_nor_another_lane", checkB7},
}

func checkB6(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	items := []flusso.LaneItem{live(10), live(20), live(30), live(40)}
	s.writer("a").publish(items...)
	r := s.reader("a")
	out := r.gets(items...)
	out[1].ack()
	out[3].ack()
	r.flush()
	s.stays(flusso.NoPosition)
	out[0].ack()
	r.flush()
	s.reaches(20)
	s.stays(20)
	out[2].ack()
	r.flush()
	s.reaches(40)
}

func checkB6Crash(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	items := []flusso.LaneItem{live(10), live(20), live(30)}
	s.writer("a").publish(items...)
	r := s.reader("a")
	out := r.gets(items...)
	out[0].ack()
	out[2].ack()
	r.flush()
	s.crash()

	s = e.open(inc)
	s.reaches(10)
	r = s.reader("a")
	r.gets(items[1:]...)[0].ack()
	r.flush()
	s.reaches(20)
}

func checkB7(e *env) {
	e.pipeline("absent", "busy", "stalled")
	s := e.open(inc)
	stalled := s.reader("stalled")
	busy := s.reader("busy")
	c := s.commits()
	const n = 400
	var futures []*flusso.Future
	for i := range n {
		futures = append(futures, c.submit(toAll(live(flusso.Position(i+1), "1"), "absent", "busy", "stalled")))
		if i == 0 {
			stalled.next() // and never acks
		}
	}
	waitAll(e, futures)
	for i := range n {
		busy.acks(live(flusso.Position(i+1), "1"))
	}
	busy.flush()
	w := s.watermark()
	e.equal("holders", w.Holders, []string{"absent", "stalled"})
}
