package wire

import (
	"fmt"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	flusso "github.com/flusso/flusso-kafka"
)

// What a retirement may say, in bytes of UTF-8. A byte takes up to three in the
// text, which stays within [MaxRetiredMetadata] then.
const (
	MaxRetiredBy  = 64
	MaxRetiredWhy = 200
)

// maxRetiredAt is the last millisecond of the year 9999: what JSON can say.
const maxRetiredAt = 253_402_300_799_999

// Retirement says who took a lane out of the watermark, when and why. The zero
// value is none.
type Retirement struct {
	At  time.Time // UTC, milliseconds
	By  string    // 1 to [MaxRetiredBy] bytes
	Why string    // 1 to [MaxRetiredWhy] bytes
}

// IsZero reports whether the lane is not retired.
func (r Retirement) IsZero() bool { return r == Retirement{} }

// Check returns what is wrong with a retirement before it is committed: a
// [*flusso.LimitError] or a [*flusso.InvalidError].
func (r Retirement) Check() error {
	if ms := r.At.UnixMilli(); ms <= 0 || ms > maxRetiredAt {
		return &flusso.InvalidError{What: "time of a retirement", Reason: "it must be after 1970 and before the year 10000"}
	}
	for _, part := range []struct {
		what, text, setting string
		most                int
	}{
		{"who retires the lane", r.By, "nothing, shorten --by", MaxRetiredBy},
		{"why the lane is retired", r.Why, "nothing, shorten --why", MaxRetiredWhy},
	} {
		if reason := badText(part.text); reason != "" {
			return &flusso.InvalidError{What: part.what, Reason: reason}
		}
		if len(part.text) > part.most {
			return &flusso.LimitError{
				What: part.what, Limit: "length in bytes", Value: int64(len(part.text)), Max: int64(part.most), Setting: part.setting,
			}
		}
	}
	return nil
}

// badText says what a text for people must not be, or "".
func badText(s string) string {
	switch {
	case s == "":
		return "it is empty"
	case !utf8.ValidString(s):
		return "it is not UTF-8"
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return fmt.Sprintf("it holds the control character %U", r)
		}
	}
	return ""
}

func appendRetirement(b []byte, r Retirement) []byte {
	if r.IsZero() {
		return b
	}
	b = append(b, " ret="...)
	b = strconv.AppendInt(b, r.At.UnixMilli(), 10)
	b = appendEscaped(append(b, " by="...), r.By)
	return appendEscaped(append(b, " why="...), r.Why)
}

const hexDigits = "0123456789ABCDEF"

// appendEscaped appends a text as a value: visible ASCII as it is, every other
// byte and the percent sign itself as % and two hexadecimal digits.
func appendEscaped(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c > ' ' && c <= '~' && c != '%' {
			b = append(b, c)
		} else {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return b
}

// escaped reads what appendEscaped writes, and nothing else: one text has one
// form.
func (p *pairs) escaped(key string, value []byte, most int) (string, error) {
	out := make([]byte, 0, len(value))
	for i := 0; i < len(value); i++ {
		c := value[i]
		if c == '%' {
			if i+2 >= len(value) {
				return "", p.bad("value of key " + key + " ends within an escape")
			}
			n, err := strconv.ParseUint(string(value[i+1:i+3]), 16, 8)
			if err != nil {
				return "", p.bad("value of key " + key + " holds the escape " + strconv.Quote(string(value[i:i+3])))
			}
			c, i = byte(n), i+2
		}
		out = append(out, c)
	}
	s := string(out)
	switch reason := badText(s); {
	case reason != "":
		return "", p.bad("value of key " + key + ": " + reason)
	case len(s) > most:
		return "", p.bad("value of key " + key + " is " + strconv.Itoa(len(s)) + " bytes long, at most " + strconv.Itoa(most))
	case string(appendEscaped(nil, s)) != string(value):
		return "", p.bad("value of key " + key + " is not in canonical form")
	}
	return s, nil
}
