package bench_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/bench"
)

// counts are requests by their keys.
type counts map[int16]int

// connection is what a client sends on its own account, however it is used.
var connection = []kmsg.Key{kmsg.ApiVersions, kmsg.GetTelemetrySubscriptions, kmsg.PushTelemetry, kmsg.SASLHandshake, kmsg.SASLAuthenticate}

// asked takes the requests since the last call, without what a connection
// takes by itself.
func asked(t *bench.Traffic) counts {
	out := counts(t.Take().Requests)
	for _, k := range connection {
		delete(out, k.Int16())
	}
	return out
}

func (c counts) all() (n int) {
	for _, each := range c {
		n += each
	}
	return n
}

// String lists the kinds by name.
func (c counts) String() string {
	if len(c) == 0 {
		return "none"
	}
	var each []string
	for _, k := range slices.SortedFunc(maps.Keys(c), func(a, b int16) int { return strings.Compare(kmsg.NameForKey(a), kmsg.NameForKey(b)) }) {
		each = append(each, fmt.Sprintf("%d %s", c[k], kmsg.NameForKey(k)))
	}
	return strings.Join(each, ", ")
}
