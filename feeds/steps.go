package feeds

// The steps of a seal between which a test kills its process.
const (
	stepDrain     = "drain"     // before the stream is marked
	stepSealed    = "sealed"    // the stream is marked
	stepPacks     = "packs"     // all packs are in the bucket
	stepIndex     = "index"     // and the key index
	stepManifest  = "manifest"  // and the manifest
	stepCommitted = "committed" // the commit is on record
	stepTrimmed   = "trimmed"   // the WAL is trimmed
)
