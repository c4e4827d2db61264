package members_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/flusso/flusso-kafka/internal/members"
)

var noon = time.UnixMilli(1764504000123)

func TestDecode_ReadsWhatWasEncoded(t *testing.T) {
	for _, tc := range []struct {
		text string
		data members.Data
	}{
		{"v=1 since=1764504000123", members.Data{Since: noon}},
		{"v=1 since=1764504000123 owner=1", members.Data{Since: noon, Owner: true}},
		{"v=1 since=1764504000123 owner=1 proc=orders-7f9c:1", members.Data{Since: noon, Owner: true, Process: "orders-7f9c:1"}},
	} {
		if got := string(tc.data.Encode()); got != tc.text {
			t.Errorf("encode %+v: got %q, want %q", tc.data, got, tc.text)
		}
		if got := members.Decode([]byte(tc.text)); !reflect.DeepEqual(got, tc.data) {
			t.Errorf("decode %q: got %+v, want %+v", tc.text, got, tc.data)
		}
		if at, ok := members.Since([]byte(tc.text)); !ok || !at.Equal(noon) {
			t.Errorf("since of %q: got %s, %t", tc.text, at, ok)
		}
	}
}

func TestDecode_OtherVersionsAndOtherPrograms(t *testing.T) {
	for text, want := range map[string]members.Data{
		"":                                   {},
		"\x01":                               {Owner: true}, // before version 1
		"\x00":                               {},
		"v=2 since=1764504000123":            {},
		"v=1 since=":                         {},
		"v=1 since=-5 owner=2":               {},
		"v=1 new=x since=1764504000123 late": {Since: noon}, // keys to come
		"rack=a":                             {},
	} {
		if got := members.Decode([]byte(text)); !reflect.DeepEqual(got, want) {
			t.Errorf("decode %q: got %+v, want %+v", text, got, want)
		}
		if _, ok := members.Since([]byte(text)); ok != !want.Since.IsZero() {
			t.Errorf("since of %q: got %t", text, ok)
		}
	}
	for _, d := range []members.Data{{Since: noon, Owner: true}, {Since: noon}} {
		if got := members.Decode(d.Plain()); got.Owner != d.Owner {
			t.Errorf("plain %+v: got %+v", d, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("v=1 since=1764504000123 owner=1 proc=h:1"))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, data []byte) {
		d := members.Decode(data)
		if d.Since.IsZero() {
			return
		}
		if again := members.Decode(d.Encode()); !reflect.DeepEqual(again, d) {
			t.Errorf("got %+v, then %+v", d, again)
		}
	})
}

func TestProcess_LeavesOutAHostThatDoesNotFit(t *testing.T) {
	for host, want := range map[string]string{
		"orders-7f9c": "orders-7f9c:12", "": ":12", "my host": ":12", "büro": ":12", strings.Repeat("h", 65): ":12",
	} {
		if got := members.Process(host, 12); got != want {
			t.Errorf("host %q: got %q, want %q", host, got, want)
		}
	}
}

func TestOf_MembersOfOtherProgramsTellNothing(t *testing.T) {
	instance := "shop.sink.audit"
	got := members.Of(kadm.DescribedGroup{Members: []kadm.DescribedGroupMember{
		{ClientID: "kafka-console-consumer", ClientHost: "/10.0.0.7"}, {ClientID: "x", ClientHost: "h", InstanceID: &instance},
	}})
	want := []members.Member{{ClientID: "kafka-console-consumer", Host: "10.0.0.7"}, {ClientID: "x", Host: "h", Instance: instance}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if s := got[0].String(); s != "kafka-console-consumer at 10.0.0.7" {
		t.Errorf("got %q", s)
	}
	m := members.Member{ClientID: "x", Host: "h", Process: "p:1", Since: noon}
	if s := m.String(); s != "x at h (process p:1) since 2025-11-30T12:00:00Z" {
		t.Errorf("got %q", s)
	}
}
