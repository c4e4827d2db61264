package wire

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
)

// TestB1_RecordsOfOneWriteOnly refuses records that cannot come from one
// write of one item, whatever their headers say.
func TestB1_RecordsOfOneWriteOnly(t *testing.T) {
	control := kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Control: true})
	for reason, damage := range map[string]func(first, last *kgo.Record){
		"different partitions": func(first, _ *kgo.Record) { first.Partition = 1 },
		"different producers":  func(first, _ *kgo.Record) { first.ProducerID++ },
		"out of order":         func(first, last *kgo.Record) { first.Offset = last.Offset + 1 },
		"control record":       func(first, _ *kgo.Record) { first.Attrs = control },
	} {
		b, h := batchOf(2)
		records := EncodeItem(nil, vectorTopic, b, h)
		records[0].Offset, records[1].Offset = 7, 8
		damage(records[0], records[1])
		_, _, err := DecodeItem(records)
		if f, ok := errors.AsType[*FormatError](err); !ok || f.Topic != vectorTopic || !strings.Contains(f.Reason, reason) {
			t.Errorf("%s: got %v", reason, err)
		}
	}
	b, h := batchOf(1)
	r := EncodeItem(nil, vectorTopic, b, h)[0]
	r.Attrs = control
	if _, ok, err := HeaderOf(r); ok || err != nil {
		t.Errorf("a control record has a header: %v, %v", ok, err)
	}
}

func TestErrorsSayWhere(t *testing.T) {
	for want, err := range map[string]error{
		"malformed item: x":                                        &FormatError{What: "item", Offset: flusso.NoOffset, Reason: "x"},
		"malformed item in topic orders.lane.audit: x":             &FormatError{What: "item", Topic: vectorTopic, Offset: flusso.NoOffset, Reason: "x"},
		"malformed item at offset 7 of topic orders.lane.audit: x": &FormatError{What: "item", Topic: vectorTopic, Offset: 7, Reason: "x"},
		"request at offset 7 of topic orders.requests has version 2, this program reads version 1: upgrade it to what wrote this": &VersionError{What: "request", Topic: "orders.requests", Offset: 7, Version: 2},
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
	if err := (&Header{Kind: Kind(9)}).Check(); err == nil || !strings.Contains(err.Error(), "kind") {
		t.Errorf("got %v", err)
	}
	if got := Kind(9).String(); got != "Kind(9)" {
		t.Errorf("got %q", got)
	}
}
