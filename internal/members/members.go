// Package members is what the members of our consumer groups say of
// themselves, and how it is read back. Kafka tells who is in a group and not
// since when: so each member puts that into what it joins with, where anybody
// who may describe the group finds it.
//
// The two to know are [Data], which a member sends, and [Of], which reads the
// members of a described group.
package members

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Data is what a member says of itself: the user data of its subscription.
type Data struct {
	Since   time.Time // when it joined; zero when it doesn't tell
	Owner   bool      // it owns the partition, or did until this rebalance; standby mode only
	Process string    // host and process id; empty when it doesn't tell
}

// plainOwner is what an owner sent before there was a version: see [Data.Plain].
const plainOwner = 1

// Encode returns the data as text, in the way of every text of ours.
func (d Data) Encode() []byte {
	b := append([]byte("v=1 since="), strconv.FormatInt(d.Since.UnixMilli(), 10)...)
	if d.Owner {
		b = append(b, " owner=1"...)
	}
	if d.Process != "" {
		b = append(append(b, " proc="...), d.Process...)
	}
	return b
}

// Plain returns the data as members before version 1 read it: whether it is
// the owner, and nothing else.
func (d Data) Plain() []byte {
	if d.Owner {
		return []byte{plainOwner}
	}
	return nil
}

// Decode reads what a member sent, by any version that we have sent. Of other
// programs' data it makes nothing.
func Decode(userData []byte) Data {
	if len(userData) == 1 && userData[0] == plainOwner {
		return Data{Owner: true}
	}
	rest, ours := strings.CutPrefix(string(userData), "v=1 ")
	if !ours {
		return Data{}
	}
	var d Data
	for pair := range strings.SplitSeq(rest, " ") {
		switch key, value, _ := strings.Cut(pair, "="); key {
		case "since":
			if ms, err := strconv.ParseInt(value, 10, 64); err == nil && ms >= 0 {
				d.Since = time.UnixMilli(ms)
			}
		case "owner":
			d.Owner = value == "1"
		case "proc":
			d.Process = value
		}
	}
	return d
}

// Since returns when the member that sent userData joined its group, by its
// own clock; false when it doesn't tell.
func Since(userData []byte) (time.Time, bool) {
	d := Decode(userData)
	return d.Since, !d.Since.IsZero()
}

// Process names a process: its host and its process id. A host name that does
// not fit the text is left out.
func Process(host string, pid int) string {
	const longest = 64
	fits := len(host) > 0 && len(host) <= longest
	for _, c := range []byte(host) {
		fits = fits && c > ' ' && c < 0x7f
	}
	if !fits {
		host = ""
	}
	return host + ":" + strconv.Itoa(pid)
}

// Member is a member of a group as it was described.
type Member struct {
	ClientID string
	Host     string    // as the broker sees it
	Instance string    // instance id of a static member
	Process  string    // host and process id, as the member says
	Since    time.Time // when it joined, by its own clock; zero when it doesn't tell
	Owner    bool      // it is assigned a partition
}

// Of returns the members of a described group. While the group rebalances
// brokers say neither since when they are there nor what they are assigned.
func Of(g kadm.DescribedGroup) []Member {
	all := make([]Member, 0, len(g.Members))
	for _, d := range g.Members {
		m := Member{ClientID: d.ClientID, Host: strings.TrimPrefix(d.ClientHost, "/")}
		if d.InstanceID != nil {
			m.Instance = *d.InstanceID
		}
		if join, ok := d.Join.AsConsumer(); ok {
			data := Decode(join.UserData)
			m.Since, m.Process = data.Since, data.Process
		}
		if assigned, ok := d.Assigned.AsConsumer(); ok {
			for _, t := range assigned.Topics {
				m.Owner = m.Owner || len(t.Partitions) > 0
			}
		}
		all = append(all, m)
	}
	return all
}

// String names the member for a person: what it is, where, and since when.
func (m Member) String() string {
	s := m.ClientID + " at " + m.Host
	if m.Process != "" {
		s += fmt.Sprintf(" (process %s)", m.Process)
	}
	if !m.Since.IsZero() {
		s += " since " + m.Since.UTC().Format(time.RFC3339)
	}
	return s
}
