#include "boot.h"
#include "plain.h"
#include "request.h"
#include "serve.h"
#include "token.h"
#include "tsc.h"

#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	token_set(unclaimed_token);
	if (getpid() == 1)
		boot();
	else if (argc == 2 && strcmp(argv[1], "--tsc-khz") == 0)
		return tsc_print();
	else
		plain_start(argc, argv);
	request_describe_kernel();
	serve_prepare();
	serve();
}
