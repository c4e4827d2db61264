package bench_test

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/bench"
	"github.com/flusso/flusso-kafka/kafka"
)

// start is how long a writer takes from nothing until it accepts what is
// published: opening the stream, with topics and their settings looked at, and
// opening the session, with the writer before it fenced and every lane's tail
// read.
func start(e *env) bench.Report {
	var r bench.Report
	curve := bench.Curve{Name: "start", Title: "Start of a writer", X: "lanes", Y: "ms", LogX: true, LogY: true}
	ready, first, creation := bench.Series{Name: "until it accepts"}, bench.Series{Name: "first publish to every lane"}, bench.Series{Name: "creating the topics"}
	var least counts
	for _, lanes := range e.lanes {
		var traffic bench.Traffic
		p := e.filledLanes(lanes)
		creation.Points = append(creation.Points, bench.Point{X: float64(lanes), Y: ms(p.took)})
		var took, published []float64
		var most counts
		for i := range e.warmups + e.pairs {
			asked(&traffic)
			began := time.Now()
			s, err := kafka.Open(e.Context(), kafka.Config{
				Pipeline: p.name.String(), Sinks: p.sinks, Incarnation: incarnation, TrimAfter: -1,
				Client: append(e.opts(), kgo.WithHooks(&traffic)),
			})
			if err != nil {
				e.Fatal(err)
			}
			w := e.commits(s)
			opened := time.Since(began)
			sent := asked(&traffic)
			began = time.Now()
			if err := submit(e.Context(), w, p.batch(), p.sinks...); err != nil {
				e.Fatal(err)
			}
			if i >= e.warmups {
				took, published = append(took, ms(opened)), append(published, ms(time.Since(began)))
				if most == nil || sent.all() > most.all() {
					most = sent
				}
			}
			e.close(s)
		}
		target := bench.Printed()
		if lanes == e.lanes[len(e.lanes)-1] {
			target = bench.AtMost(1000)
		}
		what := "start of a writer over " + count(lanes, "lane")
		line := bench.Value(what, "ms", took, target)
		publishing := bench.Value("its first batch, to every lane", "ms", published, bench.Printed())
		r.Lines = append(r.Lines, line, publishing)
		ready.Points = append(ready.Points, bench.Point{X: float64(lanes), Y: line.Ours.Median})
		first.Points = append(first.Points, bench.Point{X: float64(lanes), Y: publishing.Ours.Median})
		if least == nil {
			least = most
		}
		// Reading tails may take a step or two more where an item lies farther back.
		r.Lines = append(r.Lines, bench.Check("requests of that start", fmt.Sprint(most.all(), ": ", most), fmt.Sprintf("as many as over %s, and 8 more at most", count(e.lanes[0], "lane")), most.all() <= least.all()+8))
	}
	curve.Series = []bench.Series{ready, first, creation}
	r.Curves = append(r.Curves, curve)
	return r
}
