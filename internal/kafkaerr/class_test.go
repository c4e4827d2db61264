package kafkaerr

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestClassify(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	tests := []struct {
		name string
		err  error
		want Class
	}{
		{"nil", nil, Other},
		{"plain", errors.New("x"), Other},
		{"fenced code", kerr.ProducerFenced, Fenced},
		{"old epoch", fmt.Errorf("produce: %w", kerr.InvalidProducerEpoch), Fenced},
		{"state", kerr.InvalidTxnState, Fenced},
		{"mapping", kerr.InvalidProducerIDMapping, Fenced},
		{"not attempted", kerr.OperationNotAttempted, Fenced},
		{"fatal text", errors.New("producer ID has a fatal, unrecoverable error, err: x"), Fenced},
		{"fatal text around a code", fmt.Errorf("producer ID has a fatal, unrecoverable error, err: %w", kerr.OutOfOrderSequenceNumber), Fenced},
		{"instance", kerr.FencedInstanceID, Superseded},
		{"member", kerr.UnknownMemberID, Superseded},
		{"generation", kerr.IllegalGeneration, Superseded},
		{"stale", kerr.StaleMemberEpoch, Superseded},
		{"range", kerr.OffsetOutOfRange, Gap},
		{"loss", fmt.Errorf("poll: %w", &kgo.ErrDataLoss{Topic: "t"}), Gap},
		{"topic id", kerr.UnknownTopicID, Recreated},
		{"inconsistent id", kerr.InconsistentTopicID, Recreated},
		{"topic", kerr.UnknownTopicOrPartition, Missing},
		{"sasl", kerr.SaslAuthenticationFailed, Auth},
		{"acl", kerr.TransactionalIDAuthorizationFailed, Auth},
		{"tls", fmt.Errorf("dial: %w", x509.UnknownAuthorityError{}), Auth},
		{"tls alert from the broker", fmt.Errorf("x: %w", &net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}), Auth},
		{"first read", &kgo.ErrFirstReadEOF{}, Unreachable},
		{"large", kerr.MessageTooLarge, TooLarge},
		{"old", kerr.UnsupportedVersion, TooOld},
		{"old client side", errors.New("broker is too old; the broker has already indicated"), TooOld},
		{"dial", dial, Unreachable},
		{"eof", io.EOF, Unreachable},
		{"closed", net.ErrClosed, Unreachable},
		{"file", fmt.Errorf("open: %w", &fs.PathError{Op: "stat", Path: "x", Err: syscall.ENOENT}), Other},
		{"link", &os.LinkError{Op: "rename", Err: syscall.EXDEV}, Other},
		{"number", syscall.ECONNREFUSED, Unreachable},
		{"dns", &net.DNSError{Name: "x", IsNotFound: true}, Unreachable},
		{"canceled", context.Canceled, Timeout},
		{"deadline", fmt.Errorf("x: %w", context.DeadlineExceeded), Timeout},
		{"read deadline", os.ErrDeadlineExceeded, Timeout},
		{"leader", kerr.NotLeaderForPartition, Retriable},
		{"concurrent", kerr.ConcurrentTransactions, Retriable},
		{"joined", errors.Join(errors.New("x"), kerr.ProducerFenced), Fenced},
		{"code beats context", fmt.Errorf("%w: %w", context.DeadlineExceeded, kerr.ProducerFenced), Fenced},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Classify(tt.err); got != tt.want {
				t.Errorf("Classify(%v) = %v, want %v", tt.err, got, tt.want)
			}
		})
	}
}

func TestWrap(t *testing.T) {
	if err := Wrap("x", nil); err != nil {
		t.Fatalf("Wrap(nil) = %v", err)
	}
	err := Wrap("describe topic orders.lane.audit", fmt.Errorf("metadata: %w", kerr.UnknownTopicOrPartition))
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("cause is not reached through %v", err)
	}
	var typed *Error
	if !errors.As(err, &typed) || typed.Class != Missing {
		t.Errorf("got %#v, want class %v", typed, Missing)
	}
	for _, part := range []string{"describe topic orders.lane.audit", "create the topic first"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	twice := Wrap("open", err)
	if n := strings.Count(twice.Error(), "create the topic first"); n != 1 {
		t.Errorf("advice given %d times in %q", n, twice)
	}
	for c := Retriable; c <= Timeout; c++ {
		if advice[c] == "" || c.String() == "" || c.String() == "unknown" {
			t.Errorf("class %d has no advice or name", c)
		}
	}
	if got := Class(99).String(); got != "unknown" {
		t.Errorf("got %q", got)
	}
}

// Where the broker refused for want of a permission, the advice names it.
func TestWrap_NamesThePermissionThatIsMissing(t *testing.T) {
	needs := []Need{OnGroup("Read", "g"), OnCluster("ClusterAction"), OnTopic("Write", "t"), OnTransactionalID("Write", "x.0")}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{kerr.GroupAuthorizationFailed, "the user lacks Read on group g: grant it by kafka-acls.sh --add --operation Read --group g,"},
		{kerr.TopicAuthorizationFailed, "the user lacks Write on topic t: grant it by kafka-acls.sh --add --operation Write --topic t,"},
		{kerr.TransactionalIDAuthorizationFailed, "the user lacks Write on transactional id x.0: grant it by kafka-acls.sh --add --operation Write --transactional-id x.0,"},
		{kerr.ClusterAuthorizationFailed, "the user lacks ClusterAction on the cluster: grant it by kafka-acls.sh --add --operation ClusterAction --cluster,"},
		{kerr.SaslAuthenticationFailed, "check credentials"},
		{kerr.UnknownTopicOrPartition, "create the topic first"},
	} {
		inner := Wrap("inner", fmt.Errorf("x: %w", tt.err), needs...)
		if !strings.Contains(inner.Error(), tt.want) || !errors.Is(inner, tt.err) {
			t.Errorf("%q does not say %q", inner, tt.want)
		}
		outer := Wrap("outer", errors.Join(inner, errors.New("other")))
		if strings.Count(outer.Error(), tt.want) != 1 || strings.Contains(outer.Error(), "check credentials, certificates and the permissions on the object") != errors.Is(tt.err, kerr.SaslAuthenticationFailed) {
			t.Errorf("the advice is not told once, or another beside it: %q", outer)
		}
	}
	if err := Wrap("send", kerr.ClusterAuthorizationFailed, OnTopic("Write", "t")); !strings.Contains(err.Error(), "the user lacks Write on topic t:") {
		t.Errorf("who may write nowhere gets no producer id, and is told %v", err)
	}
	if err := Wrap("read", kerr.GroupAuthorizationFailed, OnTopic("Read", "t")); !strings.Contains(err.Error(), "check credentials, certificates and the permissions") {
		t.Errorf("a permission is named that is not missing: %v", err)
	}
}
