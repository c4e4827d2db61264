package records

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/flusso/flusso-kafka/internal/wire"
)

// Text is a record as JSON has it: bytes that are no UTF-8 stand in the member
// with Base64 in its name.
type Text struct {
	Key         *string `json:"key,omitempty"`
	KeyBase64   *string `json:"keyBase64,omitempty"`
	Value       *string `json:"value,omitempty"`
	ValueBase64 *string `json:"valueBase64,omitempty"`
	Version     *string `json:"version,omitempty"` // a string of digits: it may be above 2^53
	Tombstone   bool    `json:"tombstone,omitempty"`
	Fingerprint string  `json:"fingerprint,omitempty"` // in hex
}

// TextOf returns a record as JSON has it.
func TextOf(r *Record) Text {
	t := Text{Tombstone: r.Tombstone, Fingerprint: hex.EncodeToString(r.Fingerprint)}
	if r.Key != nil {
		t.Key, t.KeyBase64 = text(r.Key)
	}
	t.Value, t.ValueBase64 = text(r.Payload)
	if r.Version != nil {
		t.Version = new(strconv.FormatUint(*r.Version, 10))
	}
	return t
}

func text(b []byte) (plain, encoded *string) {
	if utf8.Valid(b) {
		return new(string(b)), nil
	}
	return nil, new(base64.StdEncoding.EncodeToString(b))
}

// told are members that `read` adds to a record: they are passed over, so that
// what was read from one feed can be appended to another.
var told = []string{"stream", "sequence", "commit", "appendedAt", "sealed", "place"}

// parseJSON reads one record.
func parseJSON(line []byte) (Record, error) {
	if !utf8.Valid(line) {
		return Record{}, errors.New("it is not UTF-8: give bytes that are no text as keyBase64 and valueBase64")
	}
	members, err := object(line)
	if err != nil {
		return Record{}, err
	}
	var r Record
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if err := member(&r, name, members[name]); err != nil {
			return Record{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, two := range [][2]string{{"key", "keyBase64"}, {"value", "valueBase64"}, {"fingerprint", "fingerprintBase64"}} {
		if members[two[0]] != nil && members[two[1]] != nil {
			return Record{}, fmt.Errorf("both %s and %s: give one of them", two[0], two[1])
		}
	}
	if r.Payload == nil {
		if !r.Tombstone {
			return Record{}, errors.New("no value: give value or valueBase64, empty for an empty one")
		}
		r.Payload = []byte{}
	}
	return r, nil
}

// member sets what one member says.
func member(r *Record, name string, raw json.RawMessage) (err error) {
	switch name {
	case "key":
		r.Key, err = plain(raw)
	case "keyBase64":
		r.Key, err = encoded(raw)
	case "value":
		r.Payload, err = plain(raw)
	case "valueBase64":
		r.Payload, err = encoded(raw)
	case "version":
		r.Version, err = version(raw)
	case "tombstone":
		if err = json.Unmarshal(raw, &r.Tombstone); err != nil {
			err = errors.New("true or false")
		}
	case "fingerprint":
		r.Fingerprint, err = fingerprint(raw, hex.DecodeString, "64 hex digits")
	case "fingerprintBase64":
		r.Fingerprint, err = fingerprint(raw, base64.StdEncoding.DecodeString, "base64 of 32 bytes")
	case "discarded":
		err = errors.New("that a stream was discarded is no record")
	default:
		if slices.Contains(told, name) {
			return nil
		}
		err = errors.New("unknown: known are key, value, version, tombstone, fingerprint, keyBase64, valueBase64 and fingerprintBase64")
	}
	return err
}

// object returns the members of a JSON object, each of which is there once.
// One that is null counts as left out.
func object(line []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	bad := func(err error) (map[string]json.RawMessage, error) {
		if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errors.New("it is no JSON object, or is cut off")
		}
		return nil, fmt.Errorf("it is no JSON object: %w", err)
	}
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return bad(err)
	}
	members := make(map[string]json.RawMessage)
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return bad(err)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return bad(err)
		}
		if _, twice := members[name]; twice {
			return nil, fmt.Errorf("member %q is there twice", name)
		}
		members[name] = raw
	}
	if _, err := d.Token(); err != nil {
		return bad(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the object on its line")
	}
	for name, raw := range members {
		if string(raw) == "null" {
			delete(members, name)
		}
	}
	return members, nil
}

func str(raw json.RawMessage) (string, error) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", errors.New("a string")
	}
	// Half a surrogate pair would be replaced without a word.
	if strings.ContainsRune(s, utf8.RuneError) && !bytes.ContainsRune(raw, utf8.RuneError) && !bytes.Contains(bytes.ToLower(raw), []byte(`\ufffd`)) {
		return "", errors.New("half a surrogate pair (\\ud800 to \\udfff) is no character")
	}
	return s, nil
}

func plain(raw json.RawMessage) ([]byte, error) {
	s, err := str(raw)
	return []byte(s), err
}

func encoded(raw json.RawMessage) ([]byte, error) {
	s, err := str(raw)
	if err != nil {
		return nil, err
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, errors.New("base64 with padding, of the alphabet with + and /")
	}
	return append([]byte{}, b...), nil
}

func version(raw json.RawMessage) (*uint64, error) {
	digits := string(raw)
	if strings.HasPrefix(digits, `"`) {
		var err error
		if digits, err = str(raw); err != nil {
			return nil, err
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return nil, errors.New("a whole number from 0 to 2^64-1, also as a string of digits")
	}
	return &n, nil
}

func fingerprint(raw json.RawMessage, decode func(string) ([]byte, error), want string) ([]byte, error) {
	s, err := str(raw)
	if err != nil {
		return nil, err
	}
	b, err := decode(s)
	if err != nil || len(b) != wire.FingerprintSize {
		return nil, errors.New(want)
	}
	return b, nil
}
