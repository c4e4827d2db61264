// Package kafkaerr is the one translation of what brokers and their clients
// report into the few things a caller can do about it. It exists because one
// event shows several faces: a fenced writer, for example, is told so by five
// codes and one text.
//
// [Classify] decides, [Wrap] explains.
package kafkaerr

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Class says what an error obliges its receiver to do.
type Class int

// The classes. Of several that fit, the first in this order of precedence
// counts: a broker's answer, then the deadline of the call, then the network.
const (
	// Other: nothing better is known; treat it as permanent.
	Other Class = iota
	// Retriable: the broker asks to try again; nothing is broken for good.
	Retriable
	// Fenced: the producer lost its transactional id, to a newer producer or
	// to a timeout of its transaction. Its client is never used again.
	Fenced
	// Superseded: the consumer lost its membership, to a newer one or to a
	// session timeout.
	Superseded
	// Gap: the records asked for are not there any more.
	Gap
	// Recreated: the topic was deleted and created again behind our back.
	Recreated
	// Missing: there is no such topic or partition.
	Missing
	// Auth: credentials, certificates or permissions do not suffice.
	Auth
	// TooLarge: a record or request is above a limit of the broker.
	TooLarge
	// TooOld: the broker does not know the request.
	TooOld
	// Unreachable: no broker could be reached, or the connection broke.
	Unreachable
	// Timeout: the context of the call ended, or a deadline passed.
	Timeout
)

var classNames = [...]string{
	Other: "other", Retriable: "retriable", Fenced: "fenced", Superseded: "superseded", Gap: "gap",
	Recreated: "recreated", Missing: "missing", Auth: "auth", TooLarge: "too large", TooOld: "too old",
	Unreachable: "unreachable", Timeout: "timeout",
}

// String returns the class in lower case, for logs and metrics.
func (c Class) String() string {
	if c < 0 || int(c) >= len(classNames) {
		return "unknown"
	}
	return classNames[c]
}

// codes lists the answers of a broker that mean more than their retriable flag.
var codes = map[*kerr.Error]Class{
	kerr.ProducerFenced:               Fenced,
	kerr.InvalidProducerEpoch:         Fenced,
	kerr.InvalidTxnState:              Fenced,
	kerr.InvalidProducerIDMapping:     Fenced,
	kerr.TransactionCoordinatorFenced: Fenced,
	kerr.OperationNotAttempted:        Fenced, // kgo: the producer id failed before the commit

	kerr.FencedInstanceID:  Superseded,
	kerr.UnknownMemberID:   Superseded,
	kerr.IllegalGeneration: Superseded,
	kerr.StaleMemberEpoch:  Superseded,
	kerr.FencedMemberEpoch: Superseded,

	kerr.OffsetOutOfRange: Gap,

	kerr.UnknownTopicID:      Recreated,
	kerr.InconsistentTopicID: Recreated,

	kerr.UnknownTopicOrPartition: Missing,

	kerr.SaslAuthenticationFailed:           Auth,
	kerr.UnsupportedSaslMechanism:           Auth,
	kerr.IllegalSaslState:                   Auth,
	kerr.TopicAuthorizationFailed:           Auth,
	kerr.GroupAuthorizationFailed:           Auth,
	kerr.ClusterAuthorizationFailed:         Auth,
	kerr.TransactionalIDAuthorizationFailed: Auth,
	kerr.DelegationTokenAuthorizationFailed: Auth,
	kerr.SecurityDisabled:                   Auth,

	kerr.MessageTooLarge:         TooLarge,
	kerr.RecordListTooLarge:      TooLarge,
	kerr.OffsetMetadataTooLarge:  TooLarge,
	kerr.InvalidCommitOffsetSize: TooLarge,

	kerr.UnsupportedVersion: TooOld,

	kerr.ConcurrentTransactions: Retriable,
	kerr.RebalanceInProgress:    Retriable,
	kerr.UnstableOffsetCommit:   Retriable,
}

// Texts of errors that kgo does not export.
const (
	fatalProducer = "producer ID has a fatal, unrecoverable error"
	brokerTooOld  = "broker is too old"
)

// Classify returns the class of err; [Other] for nil.
func Classify(err error) Class {
	if err == nil {
		return Other
	}
	if loss := (*kgo.ErrDataLoss)(nil); errors.As(err, &loss) {
		return Gap
	}
	if ke := (*kerr.Error)(nil); errors.As(err, &ke) {
		if c, known := codes[ke]; known {
			return c
		}
		if ke.Retriable {
			return Retriable
		}
		if strings.Contains(err.Error(), fatalProducer) {
			return Fenced
		}
		return Other
	}
	switch text := err.Error(); {
	case strings.Contains(text, fatalProducer):
		return Fenced
	case strings.Contains(text, brokerTooOld):
		return TooOld
	}
	if isTLS(err) {
		return Auth
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, kgo.ErrRecordTimeout) {
		return Timeout
	}
	if isNetwork(err) {
		return Unreachable
	}
	return Other
}

// isTLS also takes an alert that the other side sent: crypto/tls does not export
// its type, and reports it as a network error of this operation.
func isTLS(err error) bool {
	var (
		op        *net.OpError
		verify    *tls.CertificateVerificationError
		alert     tls.AlertError
		header    tls.RecordHeaderError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	return errors.As(err, &verify) || errors.As(err, &alert) || errors.As(err, &header) ||
		errors.As(err, &op) && op.Op == "remote error" || errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}

// isNetwork also takes a connection closed on its first read: kgo's text asks
// about TLS and SASL then, but a broker that restarts looks the same, and a
// class that says "permanent" would be wrong for it.
func isNetwork(err error) bool {
	var (
		op  *net.OpError
		dns *net.DNSError
		sys syscall.Errno
		eof *kgo.ErrFirstReadEOF
	)
	if errors.As(err, new(*fs.PathError)) || errors.As(err, new(*os.LinkError)) {
		return false // of a file: its number is no connection's
	}
	return errors.As(err, &eof) || errors.As(err, &op) || errors.As(err, &dns) || errors.As(err, &sys) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) ||
		kgo.IsRetryableBrokerErr(err)
}
