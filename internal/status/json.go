package status

import (
	"encoding/json"
	"fmt"
	"strconv"

	flusso "github.com/flusso/flusso-kafka"
)

// Position is a position in JSON: a string of digits, since numbers above 2^53
// lose theirs in many readers; null for none.
type Position flusso.Position

// MarshalJSON implements [json.Marshaler].
func (p Position) MarshalJSON() ([]byte, error) {
	if flusso.Position(p) == flusso.NoPosition {
		return []byte("null"), nil
	}
	return []byte(strconv.Quote(flusso.Position(p).String())), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *Position) UnmarshalJSON(b []byte) error {
	var text *string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	*p = Position(flusso.NoPosition)
	if text == nil {
		return nil
	}
	n, err := strconv.ParseUint(*text, 10, 64)
	if err != nil {
		return fmt.Errorf("position %q: want digits", *text)
	}
	*p = Position(n)
	return nil
}

// Offset is an offset in JSON: null when it is not known.
type Offset flusso.Offset

// MarshalJSON implements [json.Marshaler].
func (o Offset) MarshalJSON() ([]byte, error) {
	if o < 0 {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(o), 10), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (o *Offset) UnmarshalJSON(b []byte) error {
	var n *int64
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	*o = Offset(flusso.NoOffset)
	if n != nil {
		*o = Offset(*n)
	}
	return nil
}
