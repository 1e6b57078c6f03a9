// Package page tests the page of "ovnkube egress serve" in a browser, on a cluster
// whose node fails, and while the API server or the master does not run. It also tests the page that
// a master serves to users who may see it.
//
// "make page-test" runs it. It needs root, and headless Chromium, which the make target
// installs. It is a separate module so that the other tests need neither Chromium nor its
// driver.
package page
