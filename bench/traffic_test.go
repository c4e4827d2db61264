package bench_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/bench"
)

func TestTraffic_CountsFromOneTakeToTheNext(t *testing.T) {
	var traffic bench.Traffic
	var broker kgo.BrokerMetadata
	write := func(key kmsg.Key, times, bytes int) {
		for range times {
			traffic.OnBrokerWrite(broker, int16(key), bytes, 0, 0, nil)
		}
	}
	traffic.OnBrokerConnect(broker, 0, nil, nil)
	traffic.OnBrokerConnect(broker, 0, nil, kgo.ErrClientClosed)
	traffic.OnBrokerConnect(broker, 0, nil, nil)
	write(kmsg.Metadata, 1, 10)
	traffic.OnBrokerDisconnect(broker, nil)
	if got := traffic.Take().Connections; got != 2 {
		t.Errorf("%d connections were open at a time, want 2", got)
	}
	write(kmsg.Produce, 3, 100)
	write(kmsg.EndTxn, 3, 10)
	write(kmsg.AddPartitionsToTxn, 1, 20)
	traffic.OnBrokerRead(broker, int16(kmsg.Produce), 50, 0, 0, nil)
	traffic.OnBrokerDisconnect(broker, nil)
	cost := bench.Cost{Exchange: traffic.Take(), Moved: bench.Moved{Records: 500, Bytes: 1000}, CPU: 3 * time.Microsecond}
	const want = "14 requests per 1,000 records (Produce 6, EndTxn 6, AddPartitionsToTxn 2; connections: 1), 0.35 B written and 0.05 B read for each byte moved, 3 s of CPU per GB"
	if got := cost.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	sum := cost.Add(cost)
	if got := sum.String(); got != want {
		t.Errorf("of twice the same: %s\nwant %s", got, want)
	}
	if cost.Requests[int16(kmsg.Produce)] != 3 {
		t.Errorf("adding changed what was added to: %+v", cost)
	}
}
