package feeds

// The steps between which a test kills its process.
const (
	stepTaken     = "taken"     // every writer before is fenced, and nobody is on record yet
	stepBegun     = "begun"     // the holder is on record
	stepPack      = "pack"      // one more pack is in the bucket
	stepDrain     = "drain"     // before the stream is marked
	stepSealed    = "sealed"    // the stream is marked
	stepPacks     = "packs"     // all packs are in the bucket
	stepIndex     = "index"     // and the key index
	stepManifest  = "manifest"  // and the manifest
	stepCommitted = "committed" // the commit is on record
	stepTrimmed   = "trimmed"   // the WAL is trimmed
)
