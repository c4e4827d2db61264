package segment

import (
	"bytes"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// gate is the compressor of one transactional id's client. What a client sends
// it compresses first, so this is where a segment can be held back when the
// first of its record batches are ready to be written.
type gate struct {
	packer kgo.Compressor // nil: nothing is compressed
	before atomic.Pointer[<-chan struct{}]
}

// holdUntil holds back what the client sends from now on until c is closed,
// which must happen. It is false where there is no gate.
func (g *gate) holdUntil(c <-chan struct{}) bool {
	if g == nil {
		return false
	}
	g.before.Store(&c)
	return true
}

// Compress implements [kgo.Compressor].
func (g *gate) Compress(dst *bytes.Buffer, src []byte, flags ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	var packed []byte // written as it is
	codec := kgo.CompressionCodecType(kgo.CodecError)
	if g.packer != nil {
		packed, codec = g.packer.Compress(dst, src, flags...)
	}
	if c := g.before.Load(); c != nil {
		<-*c // it is closed when the session ends, too: what is written then is aborted
	}
	return packed, codec
}

// newClient returns the client of turn i and its gate, nil where the caller's
// options have a compressor of their own.
func (s *Session) newClient(i int) (*kgo.Client, *gate, error) {
	g := &gate{}
	opts := append([]kgo.Opt{kgo.WithCompressor(g)}, s.cfg.opts(i)...)
	cl, err := kgo.NewClient(append(opts, kgo.WithContext(s.base))...)
	if err != nil {
		return nil, nil, err
	}
	if cl.OptValue(kgo.WithCompressor) != kgo.Compressor(g) {
		return cl, nil, nil
	}
	codecs, _ := cl.OptValue(kgo.ProducerBatchCompression).([]kgo.CompressionCodec)
	if s.cfg.Shared != nil && len(codecs) > 0 && codecs[0] == kgo.SnappyCompression() {
		g.packer = s.cfg.Shared
		return cl, g, nil
	}
	if g.packer, err = kgo.DefaultCompressor(codecs...); err != nil {
		cl.Close()
		return nil, nil, err
	}
	return cl, g, nil
}
