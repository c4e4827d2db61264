package kafka

import "testing"

// TestSegmentBytesByDefault: half of the window, so that one segment gathers while
// one is acknowledged, and never more than is acknowledged in time.
func TestSegmentBytesByDefault(t *testing.T) {
	for _, tt := range []struct {
		window int64
		set    int
		want   int
	}{
		{0, 0, 16 << 20},
		{4 << 20, 0, 2 << 20},
		{1, 0, 1},
		{4 << 30, 0, 16 << 20},
		{4 << 30, 64 << 20, 64 << 20},
	} {
		c := Config{Pipeline: "orders", Sinks: []string{"audit"}, MaxUnackedBytes: tt.window, SegmentBytes: tt.set}
		if _, err := c.prepare(); err != nil || c.SegmentBytes != tt.want {
			t.Errorf("window %d, SegmentBytes %d: they become %d, %v, want %d", tt.window, tt.set, c.SegmentBytes, err, tt.want)
		}
	}
}
