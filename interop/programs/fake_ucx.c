/* A library that looks like a UCX of an unknown release, for tests of `ferroce drill ucx` that need no
 * download. */

const char *ucp_get_version_string(void)
{
	return "1.99.0";
}
