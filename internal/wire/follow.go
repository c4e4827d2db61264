package wire

import (
	"strconv"

	flusso "github.com/flusso/flusso-kafka"
)

// Follows returns nil when h can be the item right after prev in one lane, and
// otherwise a [*FormatError] that says which rule is broken. Both must have
// passed [Header.Check]. Totals.Bytes are compared for order only.
func (h *Header) Follows(prev *Header) error {
	if reason := h.breaks(prev); reason != "" {
		return &FormatError{What: "sequence of items", Offset: flusso.NoOffset, Reason: reason}
	}
	return nil
}

func (h *Header) breaks(prev *Header) string {
	through, newest := prev.Through, prev.Newest
	if h.Incarnation != prev.Incarnation {
		through, newest = flusso.NoPosition, flusso.NoPosition // positions start anew
	}
	switch {
	case h.Sequence != prev.Sequence+1:
		return "sequence " + strconv.FormatUint(h.Sequence, 10) + " follows " + strconv.FormatUint(prev.Sequence, 10)
	case h.Epoch < prev.Epoch:
		return "writer epoch " + strconv.FormatUint(h.Epoch, 10) + " follows " + strconv.FormatUint(prev.Epoch, 10)
	case h.Incarnation != prev.Incarnation && h.Epoch == prev.Epoch:
		return "the incarnation changes within writer epoch " + strconv.FormatUint(h.Epoch, 10)
	case h.Totals.Batches != prev.Totals.Batches+1,
		h.Totals.Envelopes != prev.Totals.Envelopes+uint64(h.Envelopes),
		h.Totals.Changes != prev.Totals.Changes+h.Changes,
		h.Totals.Bytes < prev.Totals.Bytes:
		return "the totals are not those before and the item's own"
	case h.Kind != Live && h.Newest != newest:
		return "newest position " + h.Newest.String() + " follows " + newest.String()
	case h.Kind == Live && through != newest && h.Position != newest:
		return "position " + h.Position.String() + " follows position " + newest.String() + ", of which more was announced"
	case h.Kind == Live && through == newest && h.Position <= newest:
		return "position " + h.Position.String() + " follows the complete position " + newest.String()
	case (h.Kind != Live || h.More) && h.Through != through:
		return "through " + h.Through.String() + " follows " + through.String()
	}
	return ""
}
