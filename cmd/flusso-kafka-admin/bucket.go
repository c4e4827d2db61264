//go:build !nocloud

package main

import (
	// The stores that a feed's bucket may be in, beside a folder. They are more
	// than half of the program: the tag nocloud builds it without.
	_ "gocloud.dev/blob/azureblob"
	_ "gocloud.dev/blob/gcsblob"
	_ "gocloud.dev/blob/s3blob"
)
