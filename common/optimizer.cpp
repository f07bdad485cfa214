#include "common/optimizer.h"
